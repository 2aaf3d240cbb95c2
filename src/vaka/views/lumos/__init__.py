"""The events of an agent as Lumosai ``AgentEvent``, and the way back.

On the wire an event is ``{"type": "TextDelta", "data": {…}}``. ``to_lumos`` adds the event of the log as ``event``, so
that ``from_lumos`` returns exactly the events that were given; ``LumosEncoder`` leaves it out unless it is
``lossless``. Events of another Lumosai server, which have no ``event``, become live events of the same meaning.
"""

from vaka.views.lumos.decode import LumosDecoder, from_lumos
from vaka.views.lumos.encode import LumosEncoder, to_lumos
from vaka.views.lumos.event import LumosEvent, StreamingConfig

__all__ = ["LumosDecoder", "LumosEncoder", "LumosEvent", "StreamingConfig", "from_lumos", "to_lumos"]
