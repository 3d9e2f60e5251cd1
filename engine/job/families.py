"""The registry of model families, which a job knows by name; what one is: `engine.model.family.Family`.

Those of the engine are in `engine.model.families`, a file each.
"""

from __future__ import annotations

from typing import Any

from engine.job.registry import Registry

FAMILIES: Registry[Any] = Registry("model family")
"""Of `engine.model.family.Family`; a job asks them for no more than `complaints(job)`."""
