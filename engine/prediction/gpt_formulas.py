"""Closed forms of the GPT: n = s·b tokens of a micro-batch, t tensor degree, m micro-batches, e bytes of an element."""

from __future__ import annotations

from engine.communication.collective_bytes import logical_bytes
from engine.job.errors import Unknown
from engine.job.job import Job
from engine.model.buckets import FP32
from engine.model.params import padded_vocab
from engine.model.unit_kinds import kind_of
from engine.model.units import recomputes, units_of_pp_rank

INT64 = 8


class GPTFormulas:
    """`engine.prediction.formulas.ClosedForms` of it."""

    def parameters(self, job: Job) -> int:
        """Parameters of the whole model: 12 L h² (1 + 13/(12h) + (V+s)/(12 L h)) + 2h, and V·h more if not tied.

        Narayanan et al. 2021, section 5.1, equation 2; the 2h are the final norm, which the paper leaves out.
        """
        h, layers, vocab, s = job.model.hidden, job.model.layers, job.model.vocab, job.model.seq
        ends = vocab * h * (1 if job.model.tied else 2) + s * h + 2 * h
        return layers * (12 * h * h + 13 * h) + ends

    def activation_bytes(self, job: Job, kind: str) -> int:
        """Bytes a unit saves for the backward of one micro-batch.

        Korthikanti et al. 2022, equations 1 to 4: per block 4·e·n·h of norms' inputs and outputs (÷ t only with
        sequence parallelism), 12·e·n·h/t inside attention and MLP, e·a·s·n/t attention probabilities; with dropout
        2·n·h of masks (÷ t only with sequence parallelism), a·s·n/t of the mask and e·a·s·n/t of what it leaves of the
        probabilities. With e = 2 and dropout that is the paper's s·b·h·(34 + 5·a·s/h). Besides it 16·n bytes of norm
        statistics, which the paper leaves out. Selective recomputation drops all that has a·s·n in it.
        """
        model, t, e = job.model, job.plan.tp, job.precision.compute
        n, h = model.seq * job.microbatch_size, model.hidden
        spread = t if job.scatters_sequence else 1
        norm = (2 * n * h * e + 2 * n * FP32) // spread  # its input, its output, mean and 1/deviation
        mask = n * h // spread if model.dropout else 0  # a byte each
        if kind == "embedding":
            return mask + (n * (INT64 + 1) if t > 1 else 0)  # looked-up ids, and which of them live elsewhere
        if kind == "head":
            return norm + n * padded_vocab(model, t) // t * FP32 + n * (INT64 + 1)  # fp32 probabilities
        _only("block", kind)
        inside = 12 * n * h * e  # qkv 3, context 1, MLP 4 + 4
        if job.plan.recompute != "selective":
            inside += model.heads * model.seq * n * (2 * e + 1 if model.dropout else e)
        return 2 * (norm + mask) + inside // t

    def held_for_weight_bytes(self, job: Job, kind: str) -> int:
        """Bytes the input part of a split backward leaves for the weight part of one micro-batch.

        Of every linear its input and its output's gradient: a block's qkv and MLP-up inputs (2·n·h, ÷ t only with
        sequence parallelism) and 3 + 4 gradients n·h/t, its attention-out and MLP-down inputs (1 + 4)·n·h/t and two
        whole gradients n·h; and the made gradients of biases and norms (13·h, 7 of them ÷ t).
        """
        model, t = job.model, job.plan.tp
        n, h = model.seq * job.microbatch_size, model.hidden
        spread = t if job.scatters_sequence else 1
        if kind == "embedding":
            return 0  # its backward is not split
        if kind == "head":
            return (n * h // spread + n * padded_vocab(model, t) // t + 2 * h) * job.precision.compute
        _only("block", kind)
        return (2 * n * h // spread + 12 * n * h // t + 2 * n * h + 6 * h + 7 * h // t) * job.precision.compute

    def model_flops(self, job: Job) -> int:
        """FLOPs that a step of the whole job needs, without recomputation: what MFU counts.

        72·B·L·s·h²·(1 + s/(6h) + V/(12·L·h)) (Narayanan et al. 2021, appendix; Korthikanti et al. 2022, equation 7): a
        forward is 24·h² + 4·s·h per token and block and 2·h·V per token in the head, a backward twice that.
        """
        model = job.model
        forward = model.layers * (24 * model.hidden**2 + 4 * model.seq * model.hidden) + 2 * model.hidden * model.vocab
        return 3 * forward * job.training.batch * model.seq

    def tensor_bytes(self, job: Job, pp_rank: int) -> dict[tuple[str, str], int]:
        """Inside layers: 4 all-reduces of [s, b, h] a block and micro-batch; with sequence parallelism 6 all-gathers
        (two of them repeat the forward's for the weight gradient) and 4 reduce-scatters; 3 all-reduces of [s, b] for
        the loss. A recomputed block repeats the two, or two and two, of its forward.
        """
        t, m = job.plan.tp, job.plan.microbatches
        if t == 1:
            return {}
        n = job.model.seq * job.microbatch_size
        units = units_of_pp_rank(job, pp_rank)
        kinds = [kind_of(unit).name for unit in units]
        blocks, embedding = kinds.count("block"), kinds.count("embedding")
        head, again = kinds.count("head"), sum(recomputes(job, u) for u in units)
        size = n * job.model.hidden * job.precision.compute
        loss = 3 * head * logical_bytes("all_reduce", t, n * FP32)
        if not job.scatters_sequence:
            reduces = 4 * blocks + 2 * again + embedding + head
            return {("tp", "all_reduce"): m * (reduces * logical_bytes("all_reduce", t, size) + loss)}
        gathers, scatters = 6 * blocks + 2 * again + embedding + 2 * head, 4 * blocks + 2 * again + embedding + head
        return {
            ("tp", "all_gather"): m * gathers * logical_bytes("all_gather", t, size),
            ("tp", "reduce_scatter"): m * scatters * logical_bytes("reduce_scatter", t, size),
            ("tp", "all_reduce"): m * loss,
        }


def _only(expected: str, kind: str) -> None:
    """What is left must be a block: to count an unknown unit as one would be a wrong number that nobody sees."""
    if kind != expected:
        raise Unknown("unit of a GPT", kind, ["embedding", expected, "head"])


GPT_FORMULAS = GPTFormulas()
