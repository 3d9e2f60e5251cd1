"""Model families, a file each: every one adds itself and its kinds of units to the registries.

A file may import `job` and its neighbours in `model`, and names its layers and formulas by module, so that reading a
job loads no torch. Start with `gpt.py`: copy it for a family of your own, and import that below.
"""

from engine.model.families import gpt

__all__ = ["gpt"]
