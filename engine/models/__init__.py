"""Models, written once for every parallel plan. Parameters are described here without torch; see `gpt` for the maths."""
