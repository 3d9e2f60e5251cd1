"""The terminal: a timeline in characters from a recording whose answer is known, and tables that fit."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from engine.job.job import Job
from engine.job.mesh import Mesh
from engine.recording.tables import Op, Recording
from lab.cli.terminal.progress import Display, Notice
from lab.cli.terminal.run import legend, proof
from lab.cli.terminal.tables import amount, communication, memory, spans_of
from lab.cli.terminal.timeline import Line, Piece, TextTimeline, text_timeline
from lab.running.execution import Progress
from lab.verdict import RULE_IN_WORDS, verdict_of
from lab.wording import RESIDENT, unit
from tests.lab.synthetic import op, recording_of, synthetic


def forward(rank: int, seq: int, k: int, start: int, end: int, kind: str = "forward") -> Op:
    return op(rank=rank, seq=seq, kind=kind, unit="block0", microbatch=k, start_ns=start, end_ns=end)


def wait(rank: int, seq: int, ref: int, start: int, end: int) -> Op:
    return op(rank=rank, seq=seq, kind="wait", ref=ref, start_ns=start, end_ns=end)


def talk(rank: int, seq: int, stream: str, start: int, end: int, parent: int = -1) -> Op:
    kind = "collective" if parent >= 0 else "reduce"
    return op(rank=rank, seq=seq, kind=kind, stream=stream, parent=parent, start_ns=start, end_ns=end, peers=(0, 1))


def lines(recording: Recording, width: int, mesh: Mesh | None = None) -> list[str]:
    return [line.text for line in text_timeline(recording, mesh or Mesh(dp=2), 0, width).lines]


HAND_MADE = recording_of(
    [
        forward(0, 0, 0, 0, 400),
        forward(0, 1, 12, 400, 800),
        op(rank=0, seq=2, kind="recv_grad", stream="pp_grad", peers=(0, 1), start_ns=800, end_ns=1000),
        wait(0, 3, 2, 800, 1000),  # for a message: the pipeline stands idle
        forward(0, 4, 0, 1000, 1800, kind="backward"),
        talk(0, 5, "tp", 1400, 1800, parent=4),  # inside the layer
        talk(0, 6, "dp", 1000, 2000),  # hidden behind the backward until 1800
        wait(0, 7, 6, 1800, 2000),  # for a collective: communication in the open
        op(rank=0, seq=8, kind="step", start_ns=2000, end_ns=2400),
        forward(1, 0, 0, 200, 300),
        op(rank=1, seq=1, kind="step", start_ns=300, end_ns=500),
    ]
)


def test_every_cell_shows_what_filled_it() -> None:
    assert lines(HAND_MADE, 24) == ["F0ffF12f··B0bb====" + "==Ssss", "··FSs···················"]


def test_a_cell_shows_what_took_most_of_it() -> None:
    assert lines(HAND_MADE, 3) == ["FBS", "···"]
    assert lines(HAND_MADE, 6)[0] == "FFB0=S"  # a tie goes to the work


def test_a_label_that_does_not_fit_is_not_cut_to_another_number() -> None:
    assert lines(HAND_MADE, 12)[0].startswith("F0Ff")  # "F1" would be another micro-batch than 12


def test_the_busy_share_is_what_the_bubble_leaves() -> None:
    picture = text_timeline(HAND_MADE, Mesh(dp=2), 0, 24)
    assert [line.busy for line in picture.lines] == pytest.approx([2000 / 2400, 300 / 2400])
    assert picture.seconds == 2400 / 1e9


def test_a_pipeline_at_unit_costs_draws_the_staircase_of_the_textbook() -> None:
    """GPipe with 3 stages and 2 micro-batches, forward 1 and backward 2 (Huang et al. 2019, figure 2c).

    The last stages reach the optimizer first and wait in it for the global gradient norm.
    """
    job = Job.from_options(pp=3, microbatches=2, batch=2, layers=3, schedule="gpipe", partition=(1, 1, 1))
    assert lines(synthetic(job), 24, Mesh(pp=3)) == [
        "F0F1············B0bbB1bb",
        "··F0F1······B0bbB1bbN===",
        "····F0F1B0bbB1bbN=======",
    ]


def test_lines_follow_the_pipeline_whatever_the_order_of_ranks() -> None:
    job = Job.from_options(dp=2, pp=2, microbatches=2, batch=4, order="pp-dp-tp")
    picture = text_timeline(synthetic(job), Mesh(("pp", "dp", "tp"), dp=2, pp=2), 0, 40)
    assert [line.rank for line in picture.lines] == [0, 2, 1, 3]


def test_of_many_ranks_each_pipeline_coordinate_shows_its_first() -> None:
    job = Job.from_options(dp=4, tp=4, pp=4, microbatches=4, layers=4)
    picture = text_timeline(synthetic(job, steps=1), Mesh(dp=4, tp=4, pp=4), 0, 40)
    assert picture.left_out == 48
    assert [line.rank for line in picture.lines] == [r + 16 * z for z in range(4) for r in range(4)]


def test_the_legend_names_only_what_is_in_the_picture() -> None:
    picture = TextTimeline((Line(0, (Piece("forward", "F0ff"), Piece("idle", "··")), 0.5),), 0.1, 0)
    assert legend(picture, 80).plain.split() == ["F0f", "forward,", "micro-batch", "0", "·", "idle"]


def printed(renderable: object, width: int) -> str:
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(renderable)
    return file.getvalue()


STATE = {"params": 4_000_000, "grads": 4_000_000, "optimizer": 8_000_000}
PEAKS = {"activations_peak": 1_234_567, "gathered_peak": 0, "buffers_peak": 3_000, "total_peak": 17_237_567}


def memory_summary(**changes: int) -> dict[str, object]:
    rows = [{"rank": rank, **STATE, **PEAKS} for rank in range(4)]
    return {"memory": {"per_rank": [row | changes for row in rows], "predicted_per_rank": rows}}


@pytest.mark.parametrize("width", [80, 120])
def test_memory_stands_beside_its_prediction_and_fits(width: int) -> None:
    same, other = printed(memory(memory_summary(), width), width), memory_summary(buffers_peak=3_000_000)
    assert same.count("=") == 7 + 1 and "≠" not in same and "0-3" in same and "<0.01" in same
    different = printed(memory(other, width), width)
    assert "3.00" in different and "≠ <0.01" in different
    assert "…" not in same + different and "activations" in same


def test_bytes_stand_beside_their_prediction() -> None:
    row = {"axis": "dp", "op": "all_reduce", "count": 3, "logical_bytes": 2_000_000, "wire_bytes": 2_500_000}
    rows = [row | {"predicted_bytes": 2_000_000}, row | {"axis": "pp", "predicted_bytes": 1_000_000}]
    shown = printed(communication({"communication": rows, "overlap": {"dp": 0.25}}), 80).splitlines()
    assert shown[1].split() == ["data", "all_reduce", "3", "2.00", "=", "2.50", "25", "%"]
    assert shown[2].split() == ["pipeline", "all_reduce", "3", "2.00", "≠", "1.00", "2.50"]


def test_one_process_sends_nothing() -> None:
    assert "nothing" in printed(communication({"communication": [], "overlap": {}}), 80)


@pytest.mark.parametrize(
    ("value", "words"), [(0, "0"), (0.001, "<0.01"), (0.25, "0.25"), (12.34, "12.3"), (1234.5, "1,234")]
)
def test_amounts_have_three_digits(value: float, words: str) -> None:
    assert amount(value) == words


def test_units_are_decimal() -> None:
    assert [unit(n)[0] for n in (999, 1000, 2e6, 3e9)] == ["bytes", "kB", "MB", "GB"]


def test_ranks_are_written_as_ranges() -> None:
    assert spans_of([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"


LIMITS = {
    "loss": {"step": 4, "off_by": 3e-4, "limit": 2e-5, "floor": 2e-6},
    "grad_norm": {"step": 0, "off_by": 0.0, "limit": 1e-5, "floor": 0.0},
    "weights": {
        "step": 2, "off_by": 3e-8, "limit": 1e-5, "floor": 1e-8, "unit": "block1", "tensor": "up.bias", "rank": 3
    },
}  # fmt: skip


def test_the_proof_says_the_state_and_each_difference_beside_its_limit() -> None:
    row = {"passed": False, "state": "different", "first_step_out": 4, "limits": LIMITS}
    row |= {"first_out": {"step": 4, "quantity": "loss"}}
    row |= {"tensor_out": {"step": 5, "unit": "block0", "tensor": "qkv.weight", "rank": 1}}
    first, *rest = printed(proof(verdict_of(row)), 80).splitlines()
    below = " ".join(" ".join(rest).split())
    assert first == "✘ differs from one process"
    assert "first out: step 4, loss; first weights: after step 5, block0 qkv.weight, rank 1" in below
    for words in (
        "loss 3.0e-04 where 2.0e-05 is allowed (step 4)",
        "gradient norm 0 of 1.0e-05 allowed (step 0)",
        "weights 3.0e-08 of 1.0e-05 allowed (after step 2, block1 up.bias, rank 3)",
        RULE_IN_WORDS,
    ):
        assert words in below


def test_a_proof_of_before_there_were_states_is_still_shown() -> None:
    found = {"loss_max_abs_diff": 1.25e-7, "grad_norm_max_rel_diff": 0.0, "param_max_abs_diff": 3e-8}
    assert printed(proof(verdict_of(found | {"passed": True})), 80).startswith("✔ equal to one process")
    bad = " ".join(printed(proof(verdict_of(found | {"passed": False, "loss_max_abs_diff": None})), 80).split())
    assert bad.startswith("? not judged: its rounding floor was not measured") and "loss not a number" in bad


def test_resident_memory_stands_below_the_ledger_with_its_definition() -> None:
    shown = " ".join(printed(memory(memory_summary(), 80, (200_000_000, 300_000_000)), 80).split())
    assert f"resident: 200 MB to 300 MB a process {RESIDENT}" in shown


@pytest.mark.parametrize(
    ("terminal", "logged", "told"), [(True, False, True), (False, False, False), (False, True, True)]
)
def test_what_is_mostly_quick_is_announced_in_a_terminal_and_not_in_a_log(
    terminal: bool, logged: bool, told: bool
) -> None:
    heard = io.StringIO()
    with Notice("searching", Console(file=heard, force_terminal=terminal), logged=logged):
        pass
    assert ("searching" in heard.getvalue()) == told


def test_a_log_gets_at_most_some_twenty_lines_of_progress() -> None:
    file = io.StringIO()
    start = Progress(phase="starting", run_id="r", world_size=8, steps=1000)
    with Display(Console(file=file, width=80)) as display:
        display(start)
        for step in range(1000):
            display(replace(start, phase="step", step=step, loss=2.0, tokens_per_second=12345.6))
    told = file.getvalue().splitlines()
    assert told[0].startswith("starting 8 processes") and told[-1] == "step 1000/1000  loss 2.0000  12,346 tokens/s"
    assert len(told) == 21 and display.run_id == "r"
