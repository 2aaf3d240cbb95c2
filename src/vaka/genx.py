"""The names that users of GenX know: ``input`` and ``next``, routers, states, state documents, streams of agents.

::

    genx = GenxRuntime(runtime, agents=[agent])
    agent = await genx.new_agent("assistant")
    await agent.input([Text(text="Hello!")])
    async for event in agent: ...
"""

from vaka.agents.match.router import MatchAgent as MatchAgent
from vaka.agents.match.router import Route as Route
from vaka.agents.quit_tools import QuitTools as QuitTools
from vaka.core.types.message import Text as Text
from vaka.runtime.genx import ContextBuilder as ContextBuilder
from vaka.runtime.genx import GenxRuntime as GenxRuntime
from vaka.runtime.genx_agent import Contents as Contents
from vaka.runtime.genx_agent import GenxAgent as GenxAgent
from vaka.runtime.genx_state import AgentState as AgentState
from vaka.runtime.genx_state import LuaState as LuaState
from vaka.runtime.genx_state import MatchState as MatchState
from vaka.runtime.genx_state import ModelContext as ModelContext
from vaka.runtime.genx_state import PromptText as PromptText
from vaka.runtime.genx_state import ReActState as ReActState
from vaka.runtime.genx_state import is_finished as is_finished
from vaka.views.demux import AgentStream as AgentStream
from vaka.views.demux import Demultiplexer as Demultiplexer
from vaka.views.demux import RoundEnd as RoundEnd
from vaka.views.demux import StreamKey as StreamKey
from vaka.views.demux import StreamPiece as StreamPiece
from vaka.views.demux import frame_of as frame_of
from vaka.views.demux import frames as frames
from vaka.views.genx import AgentEvent as AgentEvent
from vaka.views.genx import AgentEventProjection as AgentEventProjection
from vaka.views.genx import AgentEventType as AgentEventType
from vaka.views.genx import Blob as Blob
from vaka.views.genx import FuncCall as FuncCall
from vaka.views.genx import GenxToolCall as GenxToolCall
from vaka.views.genx import GenxToolResult as GenxToolResult
from vaka.views.genx import MessageChunk as MessageChunk
from vaka.views.genx import StreamCtrl as StreamCtrl
from vaka.views.genx import route_agent_event as route_agent_event
from vaka.views.genx_state import GenxMessage as GenxMessage
from vaka.views.genx_state import MatchedIntent as MatchedIntent
from vaka.views.genx_state import MemoryOptions as MemoryOptions
from vaka.views.genx_state import MemoryQuery as MemoryQuery
from vaka.views.genx_state import MemorySegment as MemorySegment
from vaka.views.genx_state import StateDocument as StateDocument
from vaka.views.genx_state import StateToolResult as StateToolResult
