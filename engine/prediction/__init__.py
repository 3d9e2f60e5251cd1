"""What a job would do, without processes. Six ways, from quick and coarse to whole; each answers another question:

- `engine.program.dryrun.dry_run`: who waits for whom, in slots, if every forward takes as long as any other.
- `formulas`: how many bytes, FLOPs and parameters, in closed form from the job's numbers; the independent answer that
  a measurement is laid beside. `counted` gives it for what has no formula.
- `peak_memory`: how many bytes each rank holds at most, by category, from the program and those formulas.
- `engine.planner.estimate`: how many seconds a step takes, roughly, for ten thousands of plans at once.
- `steady.foretell`: the same step time and peak as `simulate`, without its tables, from a few micro-batches where a
  pipeline repeats itself.
- `simulate` = `rehearsal` (the rows that a real run would record, found on tensors without data) + `replay` (when each
  of them would happen on a described cluster): a whole recording, for one plan.

It may import every room that a run needs, and starts no process. Start with `simulate.py`.
"""
