"""Jobs in and out, and refusals in the user's words."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.job.errors import JobRefused
from engine.job.job import Job
from engine.job.rules import check, notes
from engine.program.compile import compile_job

REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"tp": 3, "heads": 8, "hidden": 64}, "tp=3 does not divide heads=8: use 1, 2, 4 or 8."),
    ({"heads": 5}, "heads=5 does not divide hidden=64: use 1, 2, 4, 8 or 16."),
    ({"batch": 10, "dp": 2}, "dp=2 × microbatches=4 = 8 does not divide batch=10: use batch=8 or 16."),
    ({"batch": 3}, "dp=1 × microbatches=4 = 4 does not divide batch=3: use batch=4."),
    ({"pp": 8}, "pp=8 × chunks=1 makes 8 stages and layers=4 cannot fill them"),
    ({"schedule": "interleaved", "pp": 2}, "chunks=1: use chunks=2 or more"),
    ({"schedule": "interleaved", "chunks": 2}, "pp=1: use pp=2 or more, or schedule=1f1b"),
    ({"schedule": "interleaved", "chunks": 2, "pp": 2, "microbatches": 3, "batch": 12}, "use 2 or 4."),
    ({"chunks": 2, "pp": 2}, "schedule=1f1b has one chunk: use chunks=1."),
    ({"sequence_parallel": True, "tp": 4, "seq": 62}, "tp=4 does not divide seq=62: use 1 or 2."),
    ({"vocab": 100}, "vocab=100 cannot hold the 256 byte values"),
    ({"zero": 4}, "zero=4 is not a ZeRO stage: use 0, 1, 2 or 3."),
    ({"dp": 0}, "dp=0 is too small: use 1 or more."),
    ({"lr": float("nan")}, "lr=nan is not a positive number"),
    ({"clip": -1.0}, "clip=-1.0 is not a size"),
    ({"order": "tp-pp"}, "does not name each axis once"),
    ({"partition": (1, 1), "pp": 2}, "must share out layers=4"),
    ({"partition": (4,), "pp": 2}, "has 1 entries: use 2"),
    ({"layers": 10**6}, "use microbatches=1 or less and at most 100,000 layers."),
    ({"text": "/no/such/file"}, "is not a file that exists"),
    ({"text": "x" * 300}, "is not a file that exists"),
    ({"hidden": 10**18, "heads": 7}, "is too large: use at most 10,000,000,000,000."),
]


@pytest.mark.parametrize(("options", "words"), REFUSALS, ids=lambda v: str(v)[:40])
def test_a_refusal_names_the_knob_the_rule_and_valid_settings(options: dict[str, Any], words: str) -> None:
    with pytest.raises(JobRefused) as refused:
        check(Job.from_options(**options))
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dq": 2}, "there is no option called 'dq': did you mean dp?"),
        ({"dp": "two"}, "dp='two' is not valid: use a whole number."),
        ({"dp": 1.5}, "dp=1.5 is not valid: use a whole number."),
        (
            {"schedule": "2f2b"},
            "schedule='2f2b' is not valid: use naive, gpipe, 1f1b, interleaved, zb-h1, zb-h2 or zb-v.",
        ),
        ({"sequence_parallel": "maybe"}, "sequence_parallel='maybe' is not valid: use true or false."),
    ],
)
def test_unknown_names_and_wrong_types_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(JobRefused) as refused:
        Job.from_options(**options)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("options", "knob"),
    [
        ({"tp": 3, "heads": 8}, "tp"),
        ({"tp": 4, "heads": 6, "hidden": 48, "sequence_parallel": True, "seq": 62}, "tp"),
        ({"heads": 5, "tp": 2}, "heads"),
        ({"batch": 10, "dp": 2}, "batch"),
        ({"schedule": "interleaved", "chunks": 2, "pp": 2, "microbatches": 3, "batch": 12}, "microbatches"),
    ],
)
def test_the_nearest_valid_settings_that_a_refusal_names_are_accepted(options: dict[str, Any], knob: str) -> None:
    with pytest.raises(JobRefused) as refused:
        check(Job.from_options(**options))
    named = re.findall(r"\d+", str(refused.value).split(": use ")[1])
    assert named
    for value in named:
        check(Job.from_options(**options | {knob: int(value)}))


def test_settings_without_effect_are_noted() -> None:
    said = notes(Job.from_options(sequence_parallel=True, zero=2, keep_gathered=True))
    assert len(said) == 3 and "tp=1" in said[0] and "dp=1" in said[1] and "ZeRO-3" in said[2]


@pytest.mark.parametrize(
    "options",
    [
        {"prefetch": 3}, {"prefetch": 3, "dp": 2, "zero": 2}, {"prefetch": 3, "zero": 3},
        {"prefetch": 0, "dp": 2, "zero": 3, "overlap": False}, {"bucket_kb": 1}, {"bucket_kb": 1, "dp": 2, "zero": 2},
        {"bucket_kb": 1, "dp": 2, "zero": 3}, {"overlap": False},
    ],
)  # fmt: skip
def test_a_setting_noted_as_without_effect_compiles_to_the_same_program(options: dict[str, Any]) -> None:
    name, rest = next(iter(options)), dict(list(options.items())[1:])
    assert any(note.startswith(f"{name}=") for note in notes(Job.from_options(**options)))
    assert compile_job(Job.from_options(**options)) == compile_job(Job.from_options(**rest))


@pytest.mark.parametrize(
    "options",
    [
        {"prefetch": 3, "dp": 2, "zero": 3}, {"prefetch": 3, "dp": 2, "zero": 3, "keep_gathered": True},
        {"bucket_kb": 9999, "dp": 2, "zero": 1}, {"overlap": False, "dp": 2},
    ],
)  # fmt: skip
def test_a_setting_with_an_effect_is_not_noted(options: dict[str, Any]) -> None:
    name, rest = next(iter(options)), dict(list(options.items())[1:])
    assert not [note for note in notes(Job.from_options(**options)) if note.startswith(f"{name}=")]
    assert compile_job(Job.from_options(**options)) != compile_job(Job.from_options(**rest))


def test_a_text_file_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret.txt"
    path.write_text("x" * 1000)
    monkeypatch.setattr("engine.job.rules.os.access", lambda *_: False)  # root may read everything
    with pytest.raises(JobRefused, match="is a file you may not read: name a readable text file"):
        check(Job.from_options(text=str(path)))


@given(
    dp=st.integers(1, 9),
    tied=st.booleans(),
    lr=st.floats(1e-6, 1.0),
    order=st.sampled_from(["tp-dp-pp", "dp-pp-tp"]),
)
def test_a_job_survives_toml_and_options(tmp_path_factory: Any, dp: int, tied: bool, lr: float, order: str) -> None:
    job = Job.from_options(dp=dp, tied=tied, lr=lr, order=order, partition=(3, 1))
    path = Path(tmp_path_factory.mktemp("job")) / "job.toml"
    path.write_text(job.to_toml(), encoding="utf-8")
    assert Job.from_toml(path) == job
    assert Job.from_options(**job.options()) == job
    assert Job.from_toml(path, dp=5).plan.dp == 5, "an option given beside the file wins"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[plan]\ndp = ", "is not TOML"),
        ("[plans]\ndp = 2", "its tables are [model], [plan], [training]"),
        ("[model]\ndp = 2", "'dp' in [model], where it does not belong"),
        ("dp = 2", "its tables are [model], [plan], [training]"),
    ],
)
def test_a_faulty_job_file_is_refused_with_the_reason(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(text)
    with pytest.raises(JobRefused) as refused:
        Job.from_toml(path)
    assert words in str(refused.value)
    with pytest.raises(JobRefused, match="cannot be read"):
        Job.from_toml(tmp_path / "missing.toml")
