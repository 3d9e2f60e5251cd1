"""What the timeline's script is given: every box once, at the recording's times, with words and causes that hold."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.prediction.replay.replay import replay
from engine.program.kinds import names_where
from engine.recording.tables import Recording
from lab import analysis
from lab.analysis.step.step_ops import NoStep
from lab.views.figures.style.palette import PALETTES, palette
from lab.views.figures.timeline.lanes import CATEGORIES, boxes, lay_out
from lab.views.timeline import module, portable, timeline_data
from lab.views.timeline.data import NO_CAUSE
from lab.views.timeline.joiner import script
from tests.engine.clusters import cluster
from tests.lab.fake_run import simulated_run
from tests.lab.synthetic import LIFELIKE, message, op, recording_of, synthetic

CUBE = Job.from_options(dp=2, tp=2, pp=2, zero=1)
IDLE = CATEGORIES.index("idle")
TYPES = {"f32": "<f4", "i32": "<i4", "i16": "<i2", "u16": "<u2", "u8": "|u1"}


@pytest.fixture(scope="module")
def recording() -> Recording:
    return synthetic(CUBE, LIFELIKE)


@pytest.fixture(scope="module")
def data(recording: Recording) -> dict[str, Any]:
    return timeline_data(recording, CUBE, 1)


def columns(layer: dict[str, Any], part: str = "columns") -> dict[str, NDArray[Any]]:
    return {name: np.frombuffer(packed["data"], TYPES[packed["type"]]) for name, packed in layer[part].items()}


def test_two_ranks_and_a_late_message_come_out_as_worked_out_by_hand() -> None:
    make = op(rank=0, seq=0, kind="forward", name="forward block0 mb3", microbatch=3, stage=0, end_ns=4_000_000)
    send, receive = message(recv_seq=0, posted=0, sent=4_000_000, there=5_000_000)
    wait = op(rank=1, seq=1, kind="wait", name="wait", ref=0, start_ns=0, end_ns=5_000_000)
    use = op(rank=1, seq=2, kind="forward", name="forward block1 mb3", microbatch=3, stage=1)
    rows = [
        make,
        replace(send, seq=1, end_ns=4_500_000),
        receive,
        wait,
        replace(use, start_ns=5_000_000, end_ns=9_000_000),
    ]
    found = timeline_data(recording_of(rows), Job.from_options(pp=2), 0)
    (layer,) = found["layers"]
    column = columns(layer)
    texts = [layer["texts"][i] for i in column["text"]]
    drawn = list(
        zip(column["lane"], column["sub"], column["start"], column["length"], column["op"], texts, strict=True)
    )
    assert drawn == [
        (0, 0, 0, 4, 0, "forward block0 mb3"),
        (0, 0, 4, 5, -1, "nothing left to do, other ranks are still in this step"),
        (1, 0, 0, 4, -1, "waits for forward block0 mb3 on rank 0, which makes the activations of micro-batch 3"),
        (1, 0, 4, 1, -1, "waits: the activations of micro-batch 3 are on their way from rank 0"),
        (1, 0, 5, 4, 4, "forward block1 mb3"),
        (1, 2, 4, 1, 2, ""),
    ]
    sent = {name: values.tolist() for name, values in columns(layer, "messages").items()}
    assert sent == {
        "sent": [4], "there": [5], "from_lane": [0], "to_lane": [1], "from_stage": [0], "to_stage": [1], "micro": [3],
        "backward": [0], "send_op": [1], "op": [2],
    }  # fmt: skip


def test_every_operation_that_took_time_is_drawn_once(recording: Recording, data: dict[str, Any]) -> None:
    rows = columns(data["layers"][0])["op"]
    drawn = rows[rows >= 0]
    assert len(drawn) == len(set(drawn.tolist()))
    ops = analysis.step_ops(recording, 1)
    names = set(names_where(lambda kind: kind.computes))
    computing = {i for i, kind in enumerate(ops.kind) if kind in names and ops.end[i] > ops.start[i]}
    collectives = {
        i for i, stream in enumerate(ops.stream) if stream in ("dp", "tp", "tie") and ops.end[i] > ops.start[i]
    }
    assert set(drawn.tolist()) == computing | collectives
    assert computing and collectives


def test_a_ranks_idle_boxes_add_up_to_its_idle_time_by_cause(recording: Recording, data: dict[str, Any]) -> None:
    column = columns(data["layers"][0])
    assert ((column["category"] == IDLE) == (column["cause"] != NO_CAUSE)).all()
    expected = analysis.idle_by_cause(recording, 1)
    for lane, rank in enumerate(data["ranks"]):
        for code, cause in enumerate(analysis.CAUSES):
            mine = (column["lane"] == lane) & (column["cause"] == code)
            total = float(column["length"][mine].sum())
            assert total == pytest.approx(expected[rank["rank"]][cause] * 1e3, abs=1e-3)
    assert len(data["causes"]) == len(analysis.CAUSES)


def test_boxes_are_those_of_the_plotly_figure(recording: Recording, data: dict[str, Any]) -> None:
    lanes = lay_out(analysis.step_ops(recording, 1), mesh_of(CUBE))
    theirs = boxes(lanes, palette("light"))
    column = columns(data["layers"][0])
    for code, name in enumerate(CATEGORIES):
        mine = column["category"] == code
        assert sorted(column["start"][mine]) == pytest.approx(sorted(theirs[name].start), abs=1e-4)
        assert sorted(column["length"][mine]) == pytest.approx(sorted(theirs[name].length), abs=1e-4)


def test_boxes_of_a_lane_come_in_the_order_of_time(data: dict[str, Any]) -> None:
    column = columns(data["layers"][0])
    keys = list(zip(column["lane"], column["sub"], column["start"], strict=True))
    assert keys == sorted(keys)


def test_an_overlay_carries_the_replays_own_boxes(recording: Recording) -> None:
    other = replay(recording, CUBE, cluster(2, devices=8))
    measured, predicted = timeline_data(recording, CUBE, 1, other)["layers"]
    alone = timeline_data(other, CUBE)["layers"][0]
    assert (measured["name"], predicted["name"]) == ("measured", "predicted")
    assert predicted["length"] == alone["length"] and predicted["count"] == alone["count"]
    for name, values in columns(predicted).items():
        assert (values == columns(alone)[name]).all() or name == "sub"  # lanes of axes that only one of them uses
    start, end = analysis.step_window(other, predicted["step"])
    assert predicted["length"] == pytest.approx((end - start) / 1e6)


def test_a_collective_says_how_many_bytes_it_moves_and_between_whom(data: dict[str, Any]) -> None:
    layer = data["layers"][0]
    column = columns(layer)
    reduces = column["category"] == CATEGORIES.index("data")
    words = {layer["texts"][i] for i in column["detail"][reduces]}
    assert "8 kB by the algorithm, 8 kB on the wire\ndata axis, ranks 0, 2" in words
    assert (column["detail"][column["category"] < 4] == -1).all()


def test_lanes_come_in_pipeline_order_with_their_coordinates(data: dict[str, Any]) -> None:
    assert [rank["where"][-3:] for rank in data["ranks"]] == ["pp0"] * 4 + ["pp1"] * 4
    assert sorted(rank["rank"] for rank in data["ranks"]) == list(range(8))
    assert data["axes"][0] == "data"


def test_ranks_that_stand_for_others_say_for_how_many() -> None:
    run = simulated_run(
        Job.from_options(dp=16, tp=4, pp=2, zero=1, microbatches=2, batch=64, steps=1, cluster="h100-dgx")
    )
    found = timeline_data(run.recording, run.job)
    assert [rank["name"] for rank in found["ranks"]] == ["rank 0 (and 63 like it)", "rank 64 (and 63 like it)"]
    assert found["summary"].startswith("Timeline of step 0: 128 ranks, ")


def test_the_summary_says_length_and_idle_share(recording: Recording, data: dict[str, Any]) -> None:
    start, end = analysis.step_window(recording, 1)
    idle = analysis.bubble(recording, CUBE, 1)
    assert f"8 ranks, {(end - start) / 1e6:.3g} ms, of which {100 * idle:.0f} % idle" in data["summary"]


def test_every_colour_is_one_of_the_palettes(data: dict[str, Any]) -> None:
    for theme, p in PALETTES.items():
        assert data["palettes"][theme]["fills"] == list(p.every)


def test_as_json_the_columns_are_the_same_bytes(data: dict[str, Any]) -> None:
    back = json.loads(json.dumps(portable(data)))
    for name, packed in data["layers"][0]["columns"].items():
        assert base64.b64decode(back["layers"][0]["columns"][name]["data"]) == packed["data"]


def test_without_a_step_it_says_so_and_an_unknown_step_is_refused(recording: Recording) -> None:
    found = timeline_data(recording_of(), Job())
    assert found["layers"] == [] and "No step was completed" in found["summary"]
    with pytest.raises(NoStep, match="step 9 was not recorded"):
        timeline_data(recording, CUBE, 9)


# -- the module's text


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.js").write_text(text, encoding="utf-8")
    return folder


def test_files_are_joined_after_those_they_import_and_only_the_first_ones_exports_stay(tmp_path: Path) -> None:
    a = 'import { b } from "./b.js";\nexport function a() { return b; }\n'
    folder = write(tmp_path, a=a, b="export const b = 1;\n")
    assert module("a.js", folder) == "const b = 1;\n\nfunction a() { return b; }\n\nexport { a };\n"


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ('import { b } from "./b.js";\n', 'import { a } from "./a.js";\nexport const b = 1;\n', "in a circle"),
        ('import { c } from "./b.js";\n', "export const b = 1;\n", "c, which b.js does not export"),
        ('import { b } from "./b.js";\nconst x = 1;\n', "export const b = 1;\nlet x = 2;\n", "both declare x"),
        ('import * as b from "./b.js";\n', "", "not of the form"),
    ],
)
def test_what_cannot_be_joined_is_refused(tmp_path: Path, a: str, b: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        module("a.js", write(tmp_path, a=a, b=b))


def test_a_plain_script_exports_nothing_and_nothing_ends_its_element() -> None:
    assert script("report.js").startswith("(() => {") and "</script" not in script("report.js")
    with pytest.raises(ValueError, match=r"timeline\.js exports something"):
        script("timeline.js")


def test_no_file_of_the_module_is_long_or_sets_html_from_data() -> None:
    files = list((Path(__file__).parents[2] / "lab" / "views" / "timeline" / "js").rglob("*.js"))
    assert len(files) > 10
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") < 300, path.name
        assert not any(word in text for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "http"))
