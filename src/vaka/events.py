"""Every event of a session's log. ``match event.data: case TextDelta(text=text)`` narrows its type."""

from vaka.core.types.context import CheckpointSaved as CheckpointSaved
from vaka.core.types.context import ContextCompacted as ContextCompacted
from vaka.core.types.control import ApprovalExpired as ApprovalExpired
from vaka.core.types.control import ApprovalRequested as ApprovalRequested
from vaka.core.types.control import ApprovalResolved as ApprovalResolved
from vaka.core.types.control import Handoff as Handoff
from vaka.core.types.control import InputAdded as InputAdded
from vaka.core.types.control import InputWithdrawn as InputWithdrawn
from vaka.core.types.control import InterruptRequested as InterruptRequested
from vaka.core.types.control import QuestionAnswered as QuestionAnswered
from vaka.core.types.control import QuestionAsked as QuestionAsked
from vaka.core.types.control import SessionClosed as SessionClosed
from vaka.core.types.control import SessionErased as SessionErased
from vaka.core.types.control import SessionForked as SessionForked
from vaka.core.types.control import SessionOpened as SessionOpened
from vaka.core.types.control import SessionReverted as SessionReverted
from vaka.core.types.control import SessionUpdated as SessionUpdated
from vaka.core.types.control import StateChanged as StateChanged
from vaka.core.types.control import StreamEnd as StreamEnd
from vaka.core.types.control import StreamReset as StreamReset
from vaka.core.types.event import Body as Body
from vaka.core.types.event import Control as Control
from vaka.core.types.event import Custom as Custom
from vaka.core.types.event import Event as Event
from vaka.core.types.event import Monitor as Monitor
from vaka.core.types.event import Progress as Progress
from vaka.core.types.event import Unknown as Unknown
from vaka.core.types.ids import Cursor as Cursor
from vaka.core.types.monitor import BudgetWarning as BudgetWarning
from vaka.core.types.monitor import CacheBusted as CacheBusted
from vaka.core.types.monitor import ErrorReported as ErrorReported
from vaka.core.types.monitor import HookRan as HookRan
from vaka.core.types.monitor import Logged as Logged
from vaka.core.types.monitor import McpChanged as McpChanged
from vaka.core.types.monitor import ModelFailed as ModelFailed
from vaka.core.types.monitor import ModelSelected as ModelSelected
from vaka.core.types.monitor import ScriptAnswered as ScriptAnswered
from vaka.core.types.monitor import ScriptCalled as ScriptCalled
from vaka.core.types.monitor import UsageRecorded as UsageRecorded
from vaka.core.types.progress import AgentContinued as AgentContinued
from vaka.core.types.progress import MessageCompleted as MessageCompleted
from vaka.core.types.progress import MessageDiscarded as MessageDiscarded
from vaka.core.types.progress import MessageSnapshot as MessageSnapshot
from vaka.core.types.progress import MessageStarted as MessageStarted
from vaka.core.types.progress import OutputRejected as OutputRejected
from vaka.core.types.progress import ReasoningDelta as ReasoningDelta
from vaka.core.types.progress import StepCompleted as StepCompleted
from vaka.core.types.progress import StepStarted as StepStarted
from vaka.core.types.progress import SubagentCompleted as SubagentCompleted
from vaka.core.types.progress import SubagentStarted as SubagentStarted
from vaka.core.types.progress import TextDelta as TextDelta
from vaka.core.types.progress import ToolArgsDelta as ToolArgsDelta
from vaka.core.types.progress import ToolCalled as ToolCalled
from vaka.core.types.progress import ToolCompleted as ToolCompleted
from vaka.core.types.progress import ToolFailed as ToolFailed
from vaka.core.types.progress import ToolOutputDelta as ToolOutputDelta
from vaka.core.types.progress import ToolReturned as ToolReturned
from vaka.core.types.progress import ToolStarted as ToolStarted
from vaka.core.types.progress import TurnCancelled as TurnCancelled
from vaka.core.types.progress import TurnCompleted as TurnCompleted
from vaka.core.types.progress import TurnFailed as TurnFailed
from vaka.core.types.progress import TurnInterrupted as TurnInterrupted
from vaka.core.types.progress import TurnQueued as TurnQueued
from vaka.core.types.progress import TurnResumed as TurnResumed
from vaka.core.types.progress import TurnStarted as TurnStarted

__all__ = [
    "AgentContinued",
    "ApprovalExpired",
    "ApprovalRequested",
    "ApprovalResolved",
    "Body",
    "BudgetWarning",
    "CacheBusted",
    "CheckpointSaved",
    "ContextCompacted",
    "Control",
    "Cursor",
    "Custom",
    "ErrorReported",
    "Event",
    "Handoff",
    "HookRan",
    "InputAdded",
    "InputWithdrawn",
    "InterruptRequested",
    "Logged",
    "McpChanged",
    "MessageCompleted",
    "MessageDiscarded",
    "MessageSnapshot",
    "MessageStarted",
    "ModelFailed",
    "ModelSelected",
    "Monitor",
    "OutputRejected",
    "Progress",
    "QuestionAnswered",
    "QuestionAsked",
    "ReasoningDelta",
    "ScriptAnswered",
    "ScriptCalled",
    "SessionClosed",
    "SessionErased",
    "SessionForked",
    "SessionOpened",
    "SessionReverted",
    "SessionUpdated",
    "StateChanged",
    "StepCompleted",
    "StepStarted",
    "StreamEnd",
    "StreamReset",
    "SubagentCompleted",
    "SubagentStarted",
    "TextDelta",
    "ToolArgsDelta",
    "ToolCalled",
    "ToolCompleted",
    "ToolFailed",
    "ToolOutputDelta",
    "ToolReturned",
    "ToolStarted",
    "TurnCancelled",
    "TurnCompleted",
    "TurnFailed",
    "TurnInterrupted",
    "TurnQueued",
    "TurnResumed",
    "TurnStarted",
    "Unknown",
    "UsageRecorded",
]
