"""The names that users of Lumosai know: an agent with Lumosai's messages and options, and its events.

::

    streaming = StreamingAgent(runtime, agent)
    async for event in streaming.execute_streaming(messages, {"thread_id": "boats"}): ...
"""

from vaka.runtime.lumos import GenerateOptions as GenerateOptions
from vaka.runtime.lumos import LumosMessage as LumosMessage
from vaka.runtime.lumos import StreamingAgent as StreamingAgent
from vaka.views.lumos import LumosDecoder as LumosDecoder
from vaka.views.lumos import LumosEncoder as LumosEncoder
from vaka.views.lumos import LumosEvent as LumosEvent
from vaka.views.lumos import StreamingConfig as StreamingConfig
from vaka.views.lumos import from_lumos as from_lumos
from vaka.views.lumos import to_lumos as to_lumos
