"""The tools of semantic memory: recall, add, update and forget."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from vaka.core.ports.agent import AgentServices
from vaka.core.ports.env import format_timestamp
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.types.errors import ConfigError, ConflictError, InvalidInput, ModelError, NotFound
from vaka.core.types.ids import JSON
from vaka.core.types.message import ToolResult
from vaka.core.types.tool import ToolSpec
from vaka.memory.memory_record import FoundMemory, Memory
from vaka.memory.memory_tool import MemoryTool, object_schema, text_result
from vaka.memory.provenance import SOURCE_TYPES
from vaka.memory.semantic import MemorySource, ScopedMemory

MAX_RESULTS = 50
SOURCE_SESSION = "memory.source_session"
"""The name in ``turn.values`` of the session in which a person said what the turn remembers, if it is another one."""

_ID = {"type": "string", "description": "The id of the memory, as memory_recall shows it."}

RECALL = ToolSpec(
    name="memory_recall",
    effect="read",
    description="Search your long-term memory by meaning. Returns memories with their ids, the most relevant first.",
    parameters=object_schema(
        ("query",),
        query={"type": "string", "description": "What you want to know, in your own words."},
        top_k={"type": "integer", "minimum": 1, "maximum": MAX_RESULTS, "default": 5},
        source_type={"type": "string", "enum": list(SOURCE_TYPES), "description": "Only memories of this origin."},
        tag={"type": "string", "description": "Only memories with this tag."},
    ),
)
ADD = ToolSpec(
    name="memory_add",
    effect="idempotent",
    description=(
        "Remember one fact for later conversations, as one short sentence that is clear without its context. "
        "A fact that is already known is not stored twice."
    ),
    parameters=object_schema(
        ("text",),
        text={"type": "string", "description": "The fact."},
        explicit={
            "type": "boolean",
            "default": False,
            "description": "Whether the user has asked you to remember it.",
        },
        tags={"type": "array", "items": {"type": "string"}},
        derived_from={
            "type": "array",
            "items": {"type": "string"},
            "description": "The ids of the memories that you concluded it from.",
        },
    ),
)
UPDATE = ToolSpec(
    name="memory_update",
    effect="idempotent",
    description="Replace the text of a memory that is no longer right.",
    parameters=object_schema(("id", "text"), id=_ID, text={"type": "string", "description": "The new text."}),
)
FORGET = ToolSpec(
    name="memory_forget",
    effect="idempotent",
    description="Delete a memory, and what was concluded from it alone.",
    parameters=object_schema(("id",), id=_ID),
)
TOOL_NAMES = (RECALL.name, ADD.name, UPDATE.name, FORGET.name)

FAILURES = (InvalidInput, ConflictError, ModelError, ConfigError)
_ToolFunction = Callable[[ScopedMemory, ToolContext, dict[str, Any]], Awaitable[ToolResult]]


def make_tools(
    names: Sequence[str], services: AgentServices, find_memory: Callable[[ToolContext], ScopedMemory]
) -> list[Tool]:
    """Return the tools with these names; ``find_memory`` returns the memory of a running call."""
    functions: dict[str, tuple[ToolSpec, _ToolFunction]] = {
        RECALL.name: (RECALL, _recall),
        ADD.name: (ADD, _add),
        UPDATE.name: (UPDATE, _update),
        FORGET.name: (FORGET, _forget),
    }

    def make(spec: ToolSpec, function: _ToolFunction) -> Tool:
        async def run(context: ToolContext, given: dict[str, Any]) -> ToolResult:
            try:
                return await function(find_memory(context), context, given)
            except FAILURES as error:
                return text_result(context, str(error), failed=True)

        return MemoryTool(spec, services, run)

    return [make(*functions[name]) for name in names]


def describe_memory(memory: Memory, max_chars: int | None = None) -> str:
    """Return a memory as one line for the model; of a longer text the first ``max_chars`` characters."""
    day, text = format_timestamp(memory.provenance.updated_at)[:10], " ".join(memory.text.split())
    shown = text if max_chars is None or len(text) <= max_chars else f"{text[:max_chars]}…"
    return f"[{memory.id}] {shown} ({memory.provenance.source_type}, {day})"


def _to_value(found: FoundMemory) -> JSON:
    memory = found.memory
    return {
        "id": memory.id,
        "text": memory.text,
        "similarity": round(found.similarity, 4),
        "confidence": round(found.confidence, 4),
        "tier": found.tier,
        "sources": list(memory.sources),
        "tags": list(memory.provenance.tags),
    }


async def _recall(memory: ScopedMemory, context: ToolContext, given: dict[str, Any]) -> ToolResult:
    names = {"source_type": "source_type", "tag": "tags"}
    filter = {stored: given[name] for name, stored in names.items() if given.get(name)}
    found = await memory.search(given["query"], top_k=given.get("top_k", 5), filter=filter)
    text = "\n".join(describe_memory(one.memory) for one in found) or "nothing is remembered about this"
    return text_result(context, text, value={"memories": [_to_value(one) for one in found]})


async def _add(memory: ScopedMemory, context: ToolContext, given: dict[str, Any]) -> ToolResult:
    explicit = bool(given.get("explicit"))
    of_person = explicit or SOURCE_SESSION in context.values
    source = MemorySource(type="user_input" if of_person else "agent", name=_source_of(context), is_explicit=explicit)
    made = await memory.add(
        given["text"], source, tags=given.get("tags", ()), derived_from=given.get("derived_from", ()), key=context.key
    )
    return text_result(context, f"Remembered as {made.id}.", value={"id": made.id})


async def _update(memory: ScopedMemory, context: ToolContext, given: dict[str, Any]) -> ToolResult:
    changed = await memory.update(given["id"], given["text"], source=_source_of(context), key=context.key)
    return text_result(context, f"Changed {changed.id}.", value={"id": changed.id})


async def _forget(memory: ScopedMemory, context: ToolContext, given: dict[str, Any]) -> ToolResult:
    try:
        removal = await memory.delete(given["id"])
    except NotFound:
        if context.attempt == 1:
            raise
        return text_result(context, f"Forgot {given['id']}.")  # the attempt before a crash has deleted it
    deleted = ", ".join(removal.deleted)
    return text_result(context, f"Forgot {deleted}.", value={"deleted": list(removal.deleted)})


def _source_of(context: ToolContext) -> str:
    return session_source(context.values.get(SOURCE_SESSION, context.session))


def session_source(session: str) -> str:
    """Return the name of a session as the source of memories."""
    return f"session/{session}"
