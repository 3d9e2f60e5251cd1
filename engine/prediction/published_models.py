"""Published models and their batches, to be simulated and planned: each with where its numbers come from.

The lab's model is a GPT (pre-norm, GELU, learned positions, as many key heads as query heads). A preset of another
family has its layers, width, heads, sequence and vocabulary; how far that misses its parameter count is stated.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field

from engine.job.errors import JobRefused, told
from engine.job.job import Job, Model, Training
from engine.prediction.formulas import parameters


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A model at full size. published_params: the count that is quoted for it; gpus: what it was trained on."""

    name: str
    model: Model
    batch: int
    published_params: float
    source: str
    gpus: int | None = None
    note: str = ""
    precision: str = "mixed18"
    options: dict[str, object] = field(default_factory=dict)

    @property
    def job(self) -> Job:
        """The preset on one process; options given on top say how it is spread."""
        training = Training(steps=1, batch=self.batch)
        job = Job(model=self.model, training=training)
        return Job.from_options(job, precision=self.precision, recompute="selective", microbatches=1, **self.options)

    @property
    def params(self) -> int:
        """Parameters of the lab's model of this size."""
        return parameters(self.job)


def _gpt(layers: int, hidden: int, heads: int, seq: int = 2048, vocab: int = 51200, tied: bool = True) -> Model:
    return Model(layers=layers, hidden=hidden, heads=heads, seq=seq, vocab=vocab, tied=tied)


_LLAMA = (
    "SwiGLU, rotary positions{} are not in the lab's model; layers, width, heads, sequence and vocabulary are LLaMA's."
)

PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            name="example-12-layer", model=_gpt(12, 768, 12, seq=1024), batch=480, published_params=124e6, gpus=64,
            source="GPT-2 small: 12 layers, Radford et al. 2019, table 2 (its count corrected to 124M since)",
            note="64 is no multiple of tensor 4 × pipeline 3 = 12: 60 GPUs work and 4 stand idle.",
        ),
        Preset(
            name="gpt3-175b", model=_gpt(96, 12288, 96), batch=1536, published_params=174.6e9, gpus=1024,
            source="Brown et al. 2020, tables 2.1, D.1; batch and vocabulary of Narayanan et al. 2021, sections 5, 5.1",
        ),
        Preset(
            name="turing-nlg-17b", model=_gpt(78, 4256, 28, seq=1024), batch=512, published_params=17e9, gpus=256,
            precision="mixed16",
            source="Microsoft 2020, Turing-NLG; Rajbhandari et al. 2020, ZeRO, sections 1 and 10.5: tensor 4, ZeRO-1",
        ),
        Preset(
            name="mt-nlg-530b", model=_gpt(105, 20480, 128), batch=1920, published_params=530e9, gpus=2240,
            source="Smith et al. 2022, Megatron-Turing NLG 530B, sections 2.2 and 3.2: tensor 8 × pipeline 35",
        ),
        Preset(
            name="gpt-1t", model=_gpt(128, 25600, 160), batch=3072, published_params=1008e9, gpus=3072,
            source="Narayanan et al. 2021, table 1: tensor 8 × pipeline 64 × data 6",
        ),
        Preset(
            name="llama2-7b", model=_gpt(32, 4096, 32, seq=4096, vocab=32000, tied=False), batch=1024,
            published_params=6.74e9, source="Touvron et al. 2023, Llama 2, table 1 and section 2.2",
            note=_LLAMA.format(""),
        ),
        Preset(
            name="llama2-13b", model=_gpt(40, 5120, 40, seq=4096, vocab=32000, tied=False), batch=1024,
            published_params=13.02e9, source="Touvron et al. 2023, Llama 2, table 1 and section 2.2",
            note=_LLAMA.format(""),
        ),
        Preset(
            name="llama2-70b", model=_gpt(80, 8192, 64, seq=4096, vocab=32000, tied=False), batch=1024,
            published_params=68.98e9, source="Touvron et al. 2023, Llama 2, table 1 and section 2.2",
            note=_LLAMA.format(" and 8 shared key heads"),
        ),
    )
}  # fmt: skip


def preset(name: str) -> Preset:
    """The preset called `name`. Raises `JobRefused` with the nearest one."""
    if name in PRESETS:
        return PRESETS[name]
    near = difflib.get_close_matches(name, PRESETS, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}? There are" if near else "there are"
    raise JobRefused(f"there is no model called {told(name)}: {hint} {', '.join(PRESETS)}.")
