"""Whether a run equals one process: the distances it rests on, the rule, and the words for what the rule found.

Two honest orders of summation drift apart in a training, faster and faster, although nothing is wrong with either. So
the one-process run is made twice, in two orders, and their distance, the rounding floor, is the measure for the run's.
`distances.py` has what was measured, `rule.py` judges it, `words.py` tells it; nobody else does either. Pure Python: it
may import `lab.wording` alone, and costs `import lab` nothing. Start with `rule.py`.
"""

from lab.verdict.distances import Curve, Distances, TensorDistances, distances_of
from lab.verdict.rule import LIMIT, MULTIPLE, NOT_COMPARED, judged, shown_traces
from lab.verdict.trace import Trace
from lab.verdict.words import QUANTITIES, RULE_IN_WORDS, Badge, Judged, Verdict, brief, verdict_of

__all__ = [
    "LIMIT",
    "MULTIPLE",
    "NOT_COMPARED",
    "QUANTITIES",
    "RULE_IN_WORDS",
    "Badge",
    "Curve",
    "Distances",
    "Judged",
    "TensorDistances",
    "Trace",
    "Verdict",
    "brief",
    "distances_of",
    "judged",
    "shown_traces",
    "verdict_of",
]
