"""What a learner does besides running: exercises, claims that notebooks hold to measurements, progress kept.

It may import `running`, `store` and the engine. Start with `exercises`, then `progress.py` and `claim_table.py`.
"""
