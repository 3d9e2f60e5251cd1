"""Model families, a file each: every one adds itself and its kinds of units to the registries."""

from engine.model.families import gpt

__all__ = ["gpt"]
