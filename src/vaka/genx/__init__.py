"""The names that users of GenX know: ``input`` and ``next``, routers, states, state documents, streams of agents.

::

    genx = GenxRuntime(runtime, agents=[agent])
    agent = await genx.new_agent("assistant")
    await agent.input([Text(text="Hello!")])
    async for event in agent: ...
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.core.types.message import Text as Text
    from vaka.genx.agent_events import AgentEvent as AgentEvent
    from vaka.genx.agent_events import AgentEventProjection as AgentEventProjection
    from vaka.genx.agent_events import AgentEventType as AgentEventType
    from vaka.genx.agent_events import Blob as Blob
    from vaka.genx.agent_events import FuncCall as FuncCall
    from vaka.genx.agent_events import GenxToolCall as GenxToolCall
    from vaka.genx.agent_events import GenxToolResult as GenxToolResult
    from vaka.genx.agent_events import MessageChunk as MessageChunk
    from vaka.genx.agent_events import StreamCtrl as StreamCtrl
    from vaka.genx.agent_events import route_agent_event as route_agent_event
    from vaka.genx.demux import AgentStream as AgentStream
    from vaka.genx.demux import Demultiplexer as Demultiplexer
    from vaka.genx.demux import RoundEnd as RoundEnd
    from vaka.genx.demux import StreamKey as StreamKey
    from vaka.genx.demux import StreamPiece as StreamPiece
    from vaka.genx.demux import frame_of as frame_of
    from vaka.genx.demux import frames as frames
    from vaka.genx.genx_agent import Contents as Contents
    from vaka.genx.genx_agent import GenxAgent as GenxAgent
    from vaka.genx.genx_runtime import ContextBuilder as ContextBuilder
    from vaka.genx.genx_runtime import GenxRuntime as GenxRuntime
    from vaka.genx.match.router import MatchAgent as MatchAgent
    from vaka.genx.match.router import Route as Route
    from vaka.genx.quit_tools import QuitTools as QuitTools
    from vaka.genx.state import AgentState as AgentState
    from vaka.genx.state import LuaState as LuaState
    from vaka.genx.state import MatchState as MatchState
    from vaka.genx.state import ModelContext as ModelContext
    from vaka.genx.state import PromptText as PromptText
    from vaka.genx.state import ReActState as ReActState
    from vaka.genx.state import is_finished as is_finished
    from vaka.genx.state_document import GenxMessage as GenxMessage
    from vaka.genx.state_document import MatchedIntent as MatchedIntent
    from vaka.genx.state_document import MemoryOptions as MemoryOptions
    from vaka.genx.state_document import MemoryQuery as MemoryQuery
    from vaka.genx.state_document import MemorySegment as MemorySegment
    from vaka.genx.state_document import StateDocument as StateDocument
    from vaka.genx.state_document import StateToolResult as StateToolResult

_MODULES = {
    "AgentEvent": "vaka.genx.agent_events",
    "AgentEventProjection": "vaka.genx.agent_events",
    "AgentEventType": "vaka.genx.agent_events",
    "AgentState": "vaka.genx.state",
    "AgentStream": "vaka.genx.demux",
    "Blob": "vaka.genx.agent_events",
    "Contents": "vaka.genx.genx_agent",
    "ContextBuilder": "vaka.genx.genx_runtime",
    "Demultiplexer": "vaka.genx.demux",
    "FuncCall": "vaka.genx.agent_events",
    "GenxAgent": "vaka.genx.genx_agent",
    "GenxMessage": "vaka.genx.state_document",
    "GenxRuntime": "vaka.genx.genx_runtime",
    "GenxToolCall": "vaka.genx.agent_events",
    "GenxToolResult": "vaka.genx.agent_events",
    "LuaState": "vaka.genx.state",
    "MatchAgent": "vaka.genx.match.router",
    "MatchState": "vaka.genx.state",
    "MatchedIntent": "vaka.genx.state_document",
    "MemoryOptions": "vaka.genx.state_document",
    "MemoryQuery": "vaka.genx.state_document",
    "MemorySegment": "vaka.genx.state_document",
    "MessageChunk": "vaka.genx.agent_events",
    "ModelContext": "vaka.genx.state",
    "PromptText": "vaka.genx.state",
    "QuitTools": "vaka.genx.quit_tools",
    "ReActState": "vaka.genx.state",
    "RoundEnd": "vaka.genx.demux",
    "Route": "vaka.genx.match.router",
    "StateDocument": "vaka.genx.state_document",
    "StateToolResult": "vaka.genx.state_document",
    "StreamCtrl": "vaka.genx.agent_events",
    "StreamKey": "vaka.genx.demux",
    "StreamPiece": "vaka.genx.demux",
    "Text": "vaka.core.types.message",
    "frame_of": "vaka.genx.demux",
    "frames": "vaka.genx.demux",
    "is_finished": "vaka.genx.state",
    "route_agent_event": "vaka.genx.agent_events",
}

__all__ = [
    "AgentEvent",
    "AgentEventProjection",
    "AgentEventType",
    "AgentState",
    "AgentStream",
    "Blob",
    "Contents",
    "ContextBuilder",
    "Demultiplexer",
    "FuncCall",
    "GenxAgent",
    "GenxMessage",
    "GenxRuntime",
    "GenxToolCall",
    "GenxToolResult",
    "LuaState",
    "MatchAgent",
    "MatchState",
    "MatchedIntent",
    "MemoryOptions",
    "MemoryQuery",
    "MemorySegment",
    "MessageChunk",
    "ModelContext",
    "PromptText",
    "QuitTools",
    "ReActState",
    "RoundEnd",
    "Route",
    "StateDocument",
    "StateToolResult",
    "StreamCtrl",
    "StreamKey",
    "StreamPiece",
    "Text",
    "frame_of",
    "frames",
    "is_finished",
    "route_agent_event",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vaka.genx' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
