"""The bug zoo: classic faults of distributed training by name, to be put into a run on purpose.

Every one leaves a loss curve that looks healthy. A newcomer is one `Bug` in `BUGS` and the function that puts it in.
Those of the engine change the program (`engine.program.passes.faults`) or what a rank does
(`engine.execution.faults`); the engine itself knows nothing of them, and the one process that a run is compared with
never has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.job.job import Job
from engine.job.registry import Registry
from engine.job.schedules import SCHEDULES


@dataclass(frozen=True)
class Need:
    """What a job must have for a fault to show. use: the nearest value of the option `knob` that makes `met` true."""

    knob: str
    use: Any
    met: Callable[[Job], bool]

    def complaint(self, bug: str, job: Job) -> str:
        return (
            f"bug={bug} shows nothing with {self.knob}={_written(job.options()[self.knob])}:"
            f" use {self.knob}={_written(self.use)}."
        )


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, kw_only=True)
class Bug:
    """A fault by name.

    sentence: what is done wrong. options: of a small job that shows it. needs: without which it would change nothing.
    first: where it shows first. seen_in: the instrument that finds it where the comparison with one process cannot; ""
    where that can. in_program: "module:name" of a function (job, program) → the program with the fault; in_rank: of a
    function that puts it into a rank's `engine.execution.runtime.Runtime` before the first step.
    """

    name: str
    sentence: str
    options: Mapping[str, Any]
    needs: tuple[Need, ...] = field(repr=False)
    first: str
    seen_in: str = ""
    in_program: str = field(default="", repr=False)
    in_rank: str = field(default="", repr=False)

    def complaints(self, job: Job) -> Iterator[str]:
        """Why the fault would not show in a job, in the user's words."""
        for need in self.needs:
            if not need.met(job):
                yield need.complaint(self.name, job)


def _two_under_way(job: Job) -> bool:
    """Whether each stage but the last begins a second micro-batch before the first comes back."""
    plan = job.plan
    lanes = SCHEDULES[plan.schedule].order(plan.pp, plan.microbatches, plan.chunks)
    return all(action.kind == "forward" for lane in lanes[:-1] for action in lane[:2])


_REPLICAS = Need("dp", 2, lambda job: job.plan.replicas > 1)
_TENSOR = Need("tp", 2, lambda job: job.plan.tp > 1)
_PIPELINE = Need("pp", 2, lambda job: job.plan.pp > 1)
_MICROBATCHES = Need("microbatches", 4, lambda job: job.plan.microbatches > 1)
_TWO_STEPS = Need("steps", 3, lambda job: job.training.steps > 1)
_WHOLE_GRADIENTS = Need("zero", 1, lambda job: job.effective_zero < 2)

BUGS: Registry[Bug] = Registry(
    "bug",
    Bug(
        name="norm-gradients-not-summed",
        sentence="Under sequence parallelism each tensor rank keeps the gradient of its own tokens for norms and biases"
        " that all of them hold whole, instead of the sum over the tensor group.",
        options={"tp": 2, "sequence_parallel": True},
        needs=(_TENSOR, Need("sequence_parallel", True, lambda job: job.plan.sequence_parallel)),
        first="the gradient norm of step 0 is too low",
        in_program="engine.program.passes.faults:norm_gradients_not_summed",
    ),
    Bug(
        name="tied-copies-not-summed",
        sentence="The first and the last stage hold a copy each of the tied embedding, and each updates it with its own"
        " gradient instead of the sum of both.",
        options={"pp": 2, "tied": True},
        needs=(_PIPELINE, Need("tied", True, lambda job: job.model.tied)),
        first="the gradient norm of step 0; later the copies differ",
        in_program="engine.program.passes.faults:tied_copies_not_summed",
    ),
    Bug(
        name="loss-times-m",
        sentence="The loss of a micro-batch is its mean instead of its share of the whole batch, so that the sum over m"
        " micro-batches is m times too large.",
        options={"dp": 2, "microbatches": 4},
        needs=(_MICROBATCHES,),
        first="every loss is exactly m times that of one process",
        in_rank="engine.execution.faults:loss_times_m",
    ),
    Bug(
        name="divided-twice",
        sentence="The summed gradients are divided by the number of replicas, although each replica's loss is a share"
        " of the whole batch's already.",
        options={"dp": 2},
        needs=(_REPLICAS,),
        first="the gradient norm of step 0 is exactly 1/dp of that of one process",
        in_rank="engine.execution.faults:divided_twice",
    ),
    Bug(
        name="clip-by-own-norm",
        sentence="Each rank clips by the norm of the gradients that it holds itself instead of by the norm of all.",
        options={"tp": 2, "pp": 2},
        needs=(
            Need("tp", 2, lambda job: job.plan.tp > 1 or job.plan.pp > 1 or bool(job.effective_zero)),
            Need("clip", 1.0, lambda job: job.training.clip > 0),
        ),
        first="the gradient norm of step 1; that of step 0 is right",
        in_rank="engine.execution.faults:clip_by_own_norm",
    ),
    Bug(
        name="no-data-reduction",
        sentence="The gradients are not summed over the replicas, each of which goes on with its own.",
        options={"dp": 2},
        needs=(_REPLICAS, _WHOLE_GRADIENTS),
        first="the gradient norm of step 0; later the replicas' fingerprints differ",
        in_program="engine.program.passes.faults:no_data_reduction",
    ),
    Bug(
        name="stale-gather",
        sentence="ZeRO-3 gathers in every other step the shards as they were a step before, from a copy that nobody"
        " brought up to date.",
        options={"dp": 2, "zero": 3},
        needs=(_REPLICAS, Need("zero", 3, lambda job: job.plan.zero == 3), _TWO_STEPS),
        first="the loss of step 1, computed with the parameters of step 0",
        in_rank="engine.execution.faults:stale_gather",
    ),
    Bug(
        name="bucket-not-gathered",
        sentence="After the update one bucket of each pipeline rank is not gathered, so that each replica has new"
        " values in its own shard only.",
        options={"dp": 2, "zero": 1},
        needs=(_REPLICAS, Need("zero", 1, lambda job: job.plan.zero in (1, 2))),
        first="the loss of step 1; the replicas' fingerprints differ",
        in_program="engine.program.passes.faults:bucket_not_gathered",
    ),
    Bug(
        name="wrong-tag",
        sentence="A stage takes the activation of one micro-batch for that of its neighbour: the tags by which messages"
        " are told apart are mixed up.",
        options={"pp": 2},
        needs=(_PIPELINE, _MICROBATCHES, Need("schedule", "1f1b", _two_under_way)),
        first="the loss of step 0",
        in_rank="engine.execution.faults:wrong_tag",
    ),
    Bug(
        name="input-gradient-not-summed",
        sentence="A column-parallel linear hands back the gradient of its input without the all-reduce over the tensor"
        " group.",
        options={"tp": 2},
        needs=(
            _TENSOR,
            Need("sequence_parallel", False, lambda job: not job.plan.sequence_parallel),
        ),
        first="the gradient norm of step 0; its loss is right",
        in_rank="engine.execution.faults:input_gradient_not_summed",
    ),
    Bug(
        name="row-bias-t-times",
        sentence="A row-parallel linear adds its bias before the sum over the t tensor ranks, so that it counts t"
        " times.",
        options={"tp": 2},
        needs=(_TENSOR, _TWO_STEPS),
        first="the loss of step 1; step 0 is right, for biases start at zero",
        in_rank="engine.execution.faults:row_bias_t_times",
    ),
    Bug(
        name="same-data",
        sentence="All replicas read the part of the batch that is meant for the first.",
        options={"dp": 2},
        needs=(_REPLICAS,),
        first="the loss of step 0, a little",
        in_rank="engine.execution.faults:same_data",
    ),
    Bug(
        name="gradients-not-zeroed",
        sentence="The gradients of a step are still there when the next one adds its own.",
        options={"dp": 2},
        needs=(_TWO_STEPS,),
        first="the gradient norm of step 1",
        in_rank="engine.execution.faults:gradients_not_zeroed",
    ),
    Bug(
        name="adam-counts-microbatches",
        sentence="Adam's clock, by which it corrects its running means, goes on by one for each micro-batch instead of"
        " each step.",
        options={"dp": 2, "microbatches": 4},
        needs=(_MICROBATCHES,),
        first="the loss of step 1: the first updates are too small",
        in_rank="engine.execution.faults:adam_counts_microbatches",
    ),
    Bug(
        name="reduced-every-microbatch",
        sentence="Gradients are summed over the replicas after every micro-batch instead of once a step.",
        options={"dp": 2, "microbatches": 4},
        needs=(_REPLICAS, _MICROBATCHES, _WHOLE_GRADIENTS),
        first="nowhere in what is computed; m times the bytes on the data axis",
        seen_in="bytes",
        in_program="engine.program.passes.faults:reduced_every_microbatch",
        in_rank="engine.execution.faults:reduced_every_microbatch",
    ),
)
