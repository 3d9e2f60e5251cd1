"""Exercise: a pipeline schedule of one's own, validated, run on real processes, and scored on time and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lab.learning.exercises.exercise import Exercise, Passed, Wrong, described, wants_function
from lab.learning.exercises.sandbox import run_apart

if TYPE_CHECKING:
    from engine.job.job import Job
    from engine.program.program import Program
    from lab.learning.exercises.grader_process import Answer

NAME = "own_schedule"
P, M = 4, 8
OPTIONS: dict[str, Any] = {"pp": P, "microbatches": M, "layers": P, "partition": (1,) * P, "steps": 1}
BESIDE = ("naive", "gpipe", "1f1b", "zb-h1")

TASK = f"""
**Write your own schedule** for {P} pipeline ranks and {M} micro-batches: text with a line for each rank, or a
function `(p, m, v)` that returns such text (p = {P}, m = {M}, v = 1 chunk a rank). In a line `F0` is a forward and
`B0` a backward; a backward can be split into `I0`, its input part, which the rank before waits for, and `W0`, its
weight part, for which nobody waits.

It is validated, run on {P} real processes with its result compared with one process, and scored. F takes 1 slot, B
2, I and W 1 each. To pass:

- **time**: fewer slots than 1F1B;
- **memory**: no rank ever holds more than p = {P} micro-batches, as 1F1B (from F until B, or until W where it is
  split).
"""
BLANK = """
def own_schedule(p, m, v):
    lines = []
    for rank in range(p):
        lines.append(...)  # such as "F0 F1 I0 W0 I1 W1"
    return "\\n".join(lines)
"""
HINTS = (
    "Begin with 1F1B and write I k W k in place of each B k: the same order, and already a little faster. Why?",
    "Where a rank waits, it could run a weight part that was put off. Which ranks wait longest at the end?",
    "Memory sets the limit: until W k is done, micro-batch k is held. Which ranks hold fewer than p under 1F1B, and by"
    " how many micro-batches may they put W off?",
)


def solution(p: int, m: int, v: int) -> str:
    lines = []
    for rank in range(p):
        warmup, late = p - 1 - rank, rank  # weight parts come `rank` micro-batches late
        order = [f"F{k}" for k in range(min(warmup, m))]
        for k in range(m):
            order += [f"F{k + warmup}"] if k + warmup < m else []
            order += [f"I{k}"]
            order += [f"W{k - late}"] if k >= late else []
        order += [f"W{k}" for k in range(max(m - late, 0), m)]
        lines.append(" ".join(order))
    return "\n".join(lines)


def judge(answer: Any, seconds: float) -> Passed:
    from engine.job.job import Job
    from engine.program.handwritten import schedule_program

    job = Job.from_options(**OPTIONS)
    text = _text_of(answer, seconds)
    try:
        program = schedule_program(job, text)
    except ValueError as error:
        raise Wrong(f"The schedule is refused: {error}") from None
    rows = scores(job, program)
    return _judged(rows, text)


def _text_of(answer: Any, seconds: float) -> str:
    """The schedule as text; a function is asked for it in a process of its own."""
    if isinstance(answer, str):
        return answer
    if not callable(answer):
        raise Wrong(
            "A schedule is text with a line a rank, or a function (p, m, v) that returns it;"
            f" this is {described(answer)}."
        )
    wants_function(NAME, answer, "p", "m", "v")
    (told,) = run_apart(answer, f"{__name__}:grade", limit=seconds)
    return str(told["text"])


def grade(answer: Answer) -> dict[str, Any]:
    """What the learner's function returns, as text."""
    from engine.job.job import Job
    from engine.program.program import Action
    from engine.program.schedules.text import written_lanes, written_text

    where = f"p={P}, m={M}, v=1"
    found = answer(P, M, 1, where=where)
    if isinstance(found, str):
        return {"text": found}
    if not isinstance(found, tuple) or not all(isinstance(x, Action) for lane in found for x in lane):
        raise Wrong(f"With {where} it must return text with a line for each rank, and returned {described(found)}.")
    job = Job.from_options(**OPTIONS)
    try:
        return {"text": written_text(job, written_lanes(job, found))}
    except ValueError as error:
        raise Wrong(f"The schedule is refused: {error}") from None


def scores(job: Job, program: Program) -> list[dict[str, Any]]:
    """A row for `program` and one for each known schedule: slots, bubble, most micro-batches held on each rank."""
    from engine.job.job import Job
    from engine.program.compile import compile_job

    known = {name: compile_job(Job.from_options(job, schedule=name)) for name in BESIDE}
    return [_score(name, one) for name, one in {"yours": program, **known}.items()]


def _score(name: str, program: Program) -> dict[str, Any]:
    from engine.program.dryrun import dry_run, in_flight
    from lab.wording import percent

    walk, held = dry_run(program), in_flight(program)
    return {
        "schedule": name,
        "slots": int(walk.makespan),
        "bubble": percent(float(walk.bubble())),
        "most in flight": max(held),
        "on each rank": " ".join(map(str, held)),
    }


def _judged(rows: list[dict[str, Any]], text: str) -> Passed:
    """Runs it, and holds it against both targets."""
    from engine.job.job import Job
    from engine.processes.launch import RunFailed
    from lab.running.execute import run_job

    try:
        run = run_job(Job.from_options(**OPTIONS), by_hand=text)
    except (RunFailed, ValueError) as error:
        raise Wrong(f"The schedule is sound, but the run did not end well: {error}", score=rows) from None
    peaks = [rank["activations_peak"] for rank in run.summary["memory"]["per_rank"]]
    details = {"score": rows, "run": run.id, "activation_bytes": peaks}
    if not run.summary["parity"]["passed"]:
        raise Wrong("It ran, and its result differs from one process.", **details)
    yours, target = rows[0], next(row for row in rows if row["schedule"] == "1f1b")
    found = f"It trains, equal to one process on {P} real ranks: {yours['slots']} slots, bubble {yours['bubble']}."
    missed = []
    if yours["slots"] >= target["slots"]:
        missed.append(f"Time: {yours['slots']} slots, and the target is fewer than {target['slots']}, those of 1F1B.")
    if yours["most in flight"] > P:
        held = yours["on each rank"].split()
        rank = held.index(str(yours["most in flight"]))
        missed.append(f"Memory: rank {rank} holds {held[rank]} micro-batches at once, and the target is at most {P}.")
    if missed:
        raise Wrong(" ".join([found, *missed]), **details)
    best = next(row for row in rows if row["schedule"] == "zb-h1")
    both = f"Both targets are met: time below 1F1B, and no rank holds more than {P} micro-batches."
    more = f" ZB-H1 does it in {best['slots']}." if yours["slots"] > best["slots"] else ""
    return Passed(f"{found} {both}{more}", details)


EXERCISE = Exercise(
    name=NAME,
    line="Write your own schedule: faster than 1F1B in 1F1B's memory",
    task=TASK,
    blank=BLANK,
    hints=HINTS,
    solution=solution,
    judge=judge,
)
