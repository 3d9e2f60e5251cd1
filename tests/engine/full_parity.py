"""Every plan of the parity grid, not the sample that the tests take: `python -m tests.engine.full_parity`.

Degrees in {1, 2, 4} with product up to 8 × ZeRO 0-3 × schedule × sequence parallelism × tying; each where it changes
what is executed. Prints the largest differences found.
"""

from __future__ import annotations

from tests.engine.running import train
from tests.engine.test_parity import TINY, name, plans


def main() -> None:
    worst = {"loss": 0.0, "norm": 0.0, "weights": 0.0}
    chosen = plans()
    for i, plan in enumerate(chosen):
        layers = {"layers": 8} if plan["pp"] * plan["chunks"] > 4 else {}
        run = train(**TINY | layers | plan)
        run.assert_parity()
        pairs = list(zip(run.losses, run.reference_losses, strict=True))
        norms = list(zip(run.norms, run.reference_norms, strict=True))
        worst["loss"] = max(worst["loss"], *(abs(a - b) / b for a, b in pairs))
        worst["norm"] = max(worst["norm"], *(abs(a - b) / b for a, b in norms))
        worst["weights"] = max(worst["weights"], run.weights_relative)
        print(f"{i + 1}/{len(chosen)} {name(plan)}", flush=True)
    print("largest relative differences:", worst)


if __name__ == "__main__":
    main()
