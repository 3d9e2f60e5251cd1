"""The explorer: knobs that predict at once and start real runs in the background, of which the newest wins.

It may import `running`, `store` and the views. Start with `explorer.py`, then `knobs.py`, which says what each knob may
be set to.
"""
