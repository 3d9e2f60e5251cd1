"""Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (arXiv 1910.02054).

Table 1: gigabytes (10⁹) of model states on each device, for mixed precision with Adam (K = 12), as printed. Figure 1:
the same for 7.5 billion parameters on 64 devices.
"""

from __future__ import annotations

TABLE1: dict[tuple[float, int], tuple[float, float, float]] = {
    # (billions of parameters, data-parallel degree): ZeRO stage 1, 2, 3
    (7.5, 1): (120, 120, 120),
    (7.5, 4): (52.5, 41.3, 30),
    (7.5, 16): (35.6, 21.6, 7.5),
    (7.5, 64): (31.4, 16.6, 1.88),
    (7.5, 256): (30.4, 15.4, 0.47),
    (7.5, 1024): (30.1, 15.1, 0.12),
    (128, 1): (2048, 2048, 2048),
    (128, 4): (896, 704, 512),
    (128, 16): (608, 368, 128),
    (128, 64): (536, 284, 32),
    (128, 256): (518, 263, 8),
    (128, 1024): (513, 257, 2),
    (1000, 1): (16000, 16000, 16000),
    (1000, 4): (7000, 5500, 4000),
    (1000, 16): (4750, 2875, 1000),
    (1000, 64): (4187, 2218, 250),
    (1000, 256): (4046, 2054, 62.5),
    (1000, 1024): (4011, 2013, 15.6),
}
FIGURE1 = (120, 31.4, 16.6, 1.9)
"""ZeRO stage 0, 1, 2, 3."""
