"""The slash commands that a client can send as a prompt: the commands of the project, and ``/compact``."""

import re
from typing import TYPE_CHECKING, Any

from vaka.core.ports.agent import AgentKind
from vaka.core.types.context import ContextCompacted
from vaka.core.types.message import Content, Text
from vaka.runtime.session import Session
from vaka.server.acp.workspaces import AcpWorkspace
from vaka.server.json_rpc import JsonObject

if TYPE_CHECKING:
    from vaka.runtime.session_compaction import CompactionResult

_NOTHING_TO_COMPACT = "There is nothing to summarize yet."
_COMPACT = "compact"
_COMPACT_LINE = re.compile(rf"/{_COMPACT}(?:\s+(.*))?", re.DOTALL)


def list_commands(workspace: AcpWorkspace) -> list[JsonObject]:
    """Return the commands of a session; one of the project that is named as ours is not among them."""
    own: list[JsonObject] = []
    if _can_compact(workspace):
        about = "Summarizes the older messages of this conversation."
        own.append({"name": _COMPACT, "description": about, "input": {"hint": "what the summary is to keep"}})
    names = [command["name"] for command in own]
    return own + [
        {"name": name, "description": about or name} for name, about in workspace.commands.items() if name not in names
    ]


def read_compact_command(workspace: AcpWorkspace, content: Content) -> str | None:
    """Return the instructions of a prompt that is ``/compact``, ``None`` for another prompt."""
    texts = [part.text for part in content if isinstance(part, Text)]
    found = _COMPACT_LINE.fullmatch("\n".join(texts).strip()) if len(texts) == len(content) else None
    return (found[1] or "") if found is not None and _can_compact(workspace) else None


def _can_compact(workspace: AcpWorkspace) -> bool:
    """Whether the agent has a conversation that can be compacted; a script has none."""
    return not isinstance(workspace.agent, AgentKind)


async def compact_session(workspace: AcpWorkspace, session: Session[Any], instructions: str) -> str:
    """Compact a session and return what that has done. Raises ``VakaError``."""
    if await workspace.runtime.store.sessions.find(session.id) is None:
        return _NOTHING_TO_COMPACT
    return _describe_compaction(await session.compact(instructions))


def _describe_compaction(done: "CompactionResult") -> str:
    if done.event is None or not isinstance(done.event.data, ContextCompacted):
        return f"Not compacted: {done.skipped}" if done.skipped else _NOTHING_TO_COMPACT
    what = "Older messages summarized" if done.summary else "Long results of earlier calls shortened"
    return f"{what} ({done.before} → {done.after} tokens)."
