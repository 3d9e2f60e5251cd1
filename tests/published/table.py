"""Predicted beside measured iteration times: `python -m tests.published.table` prints them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.cluster.cluster import load_cluster
from engine.job.job import Job
from tests.published.korthikanti import CONFIGS
from tests.published.megatron import step_seconds
from tests.published.narayanan import TABLE1
from tests.published.vtrain import MEASURED


@dataclass(frozen=True)
class Case:
    """A measured iteration."""

    paper: str
    model: str
    job: Job
    measured: float
    cluster: str = "a100-dgx"

    @property
    def predicted(self) -> float:
        return step_seconds(self.job, load_cluster(self.cluster))


def cases() -> Iterator[Case]:
    """Every measured iteration of the tables, small models first within each paper."""
    for model, row in TABLE1.items():
        yield Case("Narayanan 2021, table 1", model, row.job, row.seconds)
    for model, config in CONFIGS.items():
        yield Case("Korthikanti 2022, table 5", f"{model} full recomputation", config.full, config.full_s)
        yield Case("Korthikanti 2022, table 5", f"{model} present work", config.present, config.present_s)
    for model, measured in MEASURED.items():
        yield Case("vTrain 2024", model, measured.job, measured.seconds, "a100-dgx-800g")


def main() -> None:
    errors: dict[str, list[float]] = {}
    print(f"{'':26}{'model':26}{'measured s':>12}{'predicted s':>12}{'error':>9}")
    for case in cases():
        predicted = case.predicted
        error = predicted / case.measured - 1
        errors.setdefault(case.paper, []).append(error)
        print(f"{case.paper:26}{case.model:26}{case.measured:12.2f}{predicted:12.2f}{error:+9.1%}", flush=True)
    for paper, found in errors.items():
        print(f"{paper}: mean absolute error {sum(map(abs, found)) / len(found):.1%} of {len(found)} rows")


if __name__ == "__main__":
    main()
