"""How to read a figure, in one sentence, for whoever shows it: the views of notebooks, the pages of the dashboard."""

from __future__ import annotations

GRID = "Each ball is a rank; lines join the ranks that talk along each axis. Drag to turn it."
MEMORY = "Peak of each category: measured left, predicted right (hatched). Diamonds: highest total at one time."
MEMORY_SIMULATED = "Peak of each category, as predicted. Diamonds: highest total at one time."
COMMUNICATION = "Bytes a rank moves in a step: counted, predicted by the formula, and on the wire."
MATRIX = "Bytes from each rank (row) to each rank (column) in one step."
BUBBLE = "Where each rank's time went: working, or idle and why."
SHARDS = "Each rectangle is a weight matrix to scale, with the ranks that hold each slice."
SCHEDULES = "The same work under each schedule, every action taking its unit of time."
