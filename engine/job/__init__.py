"""What somebody asks for: model, plan, training, hardware and fault, with the rules that say which of it makes sense.

The ground floor: it imports no other room of the engine and no torch; numpy is in `mesh.py` alone. What can be added
to the engine (schedules, families, kinds) is in a `registry.Registry`. Start with `job.py`, then `rules.py`.
"""
