"""Parts of messages: what a prompt, an answer and a tool result are made of."""

from vaka.core.types.history import format_history as format_history
from vaka.core.types.message import AssistantMessage as AssistantMessage
from vaka.core.types.message import Audio as Audio
from vaka.core.types.message import Citation as Citation
from vaka.core.types.message import Content as Content
from vaka.core.types.message import Document as Document
from vaka.core.types.message import Image as Image
from vaka.core.types.message import Message as Message
from vaka.core.types.message import Part as Part
from vaka.core.types.message import Reasoning as Reasoning
from vaka.core.types.message import Stored as Stored
from vaka.core.types.message import Text as Text
from vaka.core.types.message import ToolCall as ToolCall
from vaka.core.types.message import ToolMessage as ToolMessage
from vaka.core.types.message import ToolResult as ToolResult
from vaka.core.types.message import Usage as Usage
from vaka.core.types.message import UserMessage as UserMessage
from vaka.core.types.message import as_content as as_content
from vaka.core.types.message import text_of as text_of

__all__ = [
    "AssistantMessage",
    "Audio",
    "Citation",
    "Content",
    "Document",
    "Image",
    "Message",
    "Part",
    "Reasoning",
    "Stored",
    "Text",
    "ToolCall",
    "ToolMessage",
    "ToolResult",
    "Usage",
    "UserMessage",
    "as_content",
    "format_history",
    "text_of",
]
