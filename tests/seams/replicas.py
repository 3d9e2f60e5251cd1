"""An axis nobody else has: copies of the whole data-parallel group, each with its own part of the batch."""

from engine.job.axes import AXES, Axis
from engine.program.streams import STREAMS, Stream

AXES.add(Axis(name="rp", word="replica", letter="r", divides="batch"))
STREAMS.add(Stream("rp", "rp", "replica"))
