"""`lab plan`: the same content as a table and as JSON, refusals with exit status 2."""

from __future__ import annotations

import json

import pytest

import lab
from engine.job.errors import JobRefused
from lab.cli.parser import main

ASK = ["plan", "--model", "example-12-layer", "--gpus", "8", "--refine", "1", "--top", "3", "--recompute", "none"]


def test_the_table_and_the_json_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASK, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [plan["replayed"] for plan in told["plans"]] == [True, False, False]
    assert told["idle_gpus"] == 0
    assert main(ASK) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"{told['legal']:,} legal plans" in text
    assert told["terms"] in text
    best = told["plans"][0]
    assert f"{best['dp']}·{best['tp']}·{best['pp']}" in text
    for sentence in told["sentences"]:
        assert " ".join(sentence.split()) in text


REFUSED = [
    ("--gpus 0 --model llama2-7b", "gpus=0 is too small"),
    ("--gpus many --model llama2-7b", "gpus='many' is not valid"),
    ("--gpus 8 --model llama2-7b --cluster nowhere", "there is no cluster called 'nowhere'"),
    ("--gpus 8 --model llama2-7b --top 0", "top=0 is too small"),
    ("--gpus 8 --model llama2-7b --reserve 90", "a device has 80 GB"),
    ("--model llama2-7b", "needs --gpus"),
]


@pytest.mark.parametrize(("line", "words"), REFUSED)
def test_bad_wishes_are_refused(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *line.split()]) == 2
    assert words in capsys.readouterr().err


def test_python_keywords_are_the_options() -> None:
    found = lab.plan(model="example-12-layer", gpus=64, refine=0, tp=4, pp=3)
    assert found.idle_gpus == 4
    with pytest.raises(JobRefused, match="no option called 'tpp'"):
        lab.plan(model="example-12-layer", gpus=64, tpp=4)
