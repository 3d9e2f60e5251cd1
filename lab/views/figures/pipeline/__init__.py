"""Figures of the pipeline: where its bubble comes from, and schedules beside each other as slots.

It may import `analysis`, the engine's programs and the style. Start with `bubble.py`, then `schedules.py`.
"""
