"""How many bytes an element takes: the two conventions of mixed-precision training, and plain fp32.

Published memory figures differ by which terms they count, so a plan names its convention and the lab prints the terms.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Precision:
    """Bytes per element. compute: parameters, activations, messages. grad: gradients and their reductions.

    optimizer: Adam's mean and square in fp32 and, where parameters have 16 bits, an fp32 master copy of them.
    """

    compute: int
    grad: int
    optimizer: int

    @property
    def state(self) -> int:
        """Bytes of model state per parameter without sharding."""
        return self.compute + self.grad + self.optimizer

    def terms(self) -> str:
        """The convention in words, to be printed beside what it gave."""
        parts = f"{self.compute} parameters + {self.grad} gradients + {self.optimizer} optimizer"
        return f"{self.state} bytes per parameter: {parts}"


PRECISIONS = {
    "fp32": Precision(4, 4, 8),
    "mixed16": Precision(2, 2, 12),  # Rajbhandari et al. 2020, ZeRO, section 3.1
    "mixed18": Precision(2, 4, 12),  # Megatron-LM with fp32 main gradients (Korthikanti et al. 2022, figure 1)
}
