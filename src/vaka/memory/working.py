"""Working memory: a short text about a session or a user that the model always sees and keeps up to date."""

import copy
import itertools
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, cast, get_args

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.agent import AgentServices
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.ports.turn_protocols import ToolSource
from vaka.core.types.errors import ConfigError, Corrupt, InvalidInput
from vaka.core.types.message import ToolCall, ToolResult
from vaka.core.types.tool import ToolSpec
from vaka.memory.enclosed_text import enclose_text
from vaka.memory.memory_tool import MemoryTool, object_schema, text_result
from vaka.memory.owner import OpensMemory, find_owner, require_owner
from vaka.memory.working_record import (
    MAX_BYTES,
    MemoryMeta,
    NotInMemory,
    StoredWorkingMemory,
    check_limits,
    find_content_problem,
    resource_key,
    thread_key,
)

WorkingMemoryScope: TypeAlias = Literal["thread", "resource"]
UpdateReason: TypeAlias = Literal["append-new-memory", "clarify-existing-memory", "replace-irrelevant-memory"]

TOOL_NAMES = ("update_working_memory", "update_working_memory_experimental")

_UPDATE = ToolSpec(
    name="update_working_memory",
    effect="idempotent",
    description="Replace your whole working memory. What you leave out is forgotten, so repeat what is still true.",
    parameters=object_schema(
        ("memory",), memory={"type": "string", "description": "The new content of the working memory, in full."}
    ),
)
_EDIT = ToolSpec(
    name="update_working_memory_experimental",
    effect="idempotent",
    description="Change a part of your working memory: add a text to it, or replace a text in it.",
    parameters=object_schema(
        ("new_memory",),
        new_memory={"type": "string", "description": "The text to add, or to put in place of search_string."},
        search_string={"type": "string", "description": "The text to replace, exactly as it is in the memory."},
        update_reason={
            "type": "string",
            "enum": list(get_args(UpdateReason)),
            "default": "append-new-memory",
            "description": "append-new-memory adds new_memory at the end; the others replace search_string.",
        },
    ),
)

_INSTRUCTIONS = """\
This is your working memory{about}. It is shown to you at the beginning of every turn. When you learn something that \
belongs in it, or something in it is no longer true, change it with {tools} in the same turn, and do not mention that \
you do. {form}"""


class WorkingMemory(Middleware, ToolSource, OpensMemory[StoredWorkingMemory]):
    """Shows the model a working memory at the top of the system prompt, with tools to change it.

    ``scope``: ``thread`` is one memory for each session, ``resource`` one for each owner of sessions. ``schema`` is a
    JSON Schema: the content is then JSON that fits it (of the type ``string``: a text that fits it). ``template`` is
    shown while the memory is empty, for the model to fill in. ``ttl`` is the number of seconds after the last change
    at which the memory expires; it is then deleted when it is next read, and by ``vaka sessions gc``.
    """

    def __init__(
        self,
        *,
        scope: WorkingMemoryScope = "thread",
        schema: "dict[str, Any] | None" = None,
        template: str = "",
        ttl: float | None = None,
        tools: Sequence[str] = TOOL_NAMES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        if scope not in get_args(WorkingMemoryScope):
            raise ConfigError(f"scope is {scope!r}; expected 'thread' or 'resource'")
        try:
            check_limits(ttl, max_bytes)
        except InvalidInput as error:
            raise ConfigError(f"WorkingMemory: {error}") from error
        unknown = sorted(set(tools) - set(TOOL_NAMES))
        if unknown:
            raise ConfigError(f"WorkingMemory has no tool {unknown[0]!r}; expected some of {', '.join(TOOL_NAMES)}")
        self.scope: WorkingMemoryScope = scope
        self._schema = schema
        self._template = template
        self._ttl = ttl
        self._max_bytes = max_bytes
        self._names = tuple(tools)
        self._key = f"memory.working/{next(_numbers)}"
        self._services: AgentServices | None = None

    def with_services(self, services: AgentServices) -> "WorkingMemory":
        bound = copy.copy(self)
        bound._services = services  # noqa: SLF001  # of the same class
        if self._schema is not None:
            try:
                services.find_schema_problem(self._schema, None)
            except InvalidInput as error:
                raise ConfigError(f"the schema of WorkingMemory: {error}") from error
        return bound

    def tools(self) -> Sequence[Tool]:
        services = self._services
        if services is None:
            return ()
        made = {
            _UPDATE.name: MemoryTool(_UPDATE, services, self._update),
            _EDIT.name: MemoryTool(_EDIT, services, self._edit),
        }
        return [made[name] for name in self._names]

    async def opening_text(self, turn: Turn) -> str:
        """Return what precedes the instructions in the system prompt of a turn."""
        memory = await self.open(turn)
        try:
            content = await memory.get()
        except Corrupt:
            content = f"[The stored memory is damaged and not shown. {TOOL_NAMES[0]} writes a new one.]"
        return f"{enclose_text('working_memory', content or self._template)}\n\n{self._describe()}"

    async def before_tool(self, turn: Turn, call: ToolCall) -> ToolCall:
        if call.name in self._names:
            await self.open(turn)
        return call

    async def open(self, turn: Turn) -> StoredWorkingMemory:
        """Return the memory of a turn. Raises ``ConfigError`` for the scope ``resource`` without an owner."""
        memory: StoredWorkingMemory | None = turn.values.get(self._key)
        if memory is None:
            ids = await self._find_ids(turn)
            key = thread_key(ids.thread_id) if self.scope == "thread" else resource_key(ids.resource_id)
            memory = turn.values[self._key] = StoredWorkingMemory(
                turn.log.store.values,
                key,
                ids,
                now=turn.env.clock.time,
                ttl=self._ttl,
                find_problem=self._find_problem,
                redact=turn.log.secrets.redact_data,
                max_bytes=self._max_bytes,
            )
            turn.values[f"{self._key}/ids"] = ids
        return memory

    async def _find_ids(self, turn: Turn) -> MemoryMeta:
        if self.scope == "thread":
            return MemoryMeta(thread_id=turn.session, resource_id=await find_owner(turn))
        owner = await require_owner(turn, "WorkingMemory(scope='resource')", "use scope='thread'")
        return MemoryMeta(thread_id=turn.session, resource_id=owner)

    def _find_problem(self, content: str) -> str:
        services = self._services
        return "" if services is None else find_content_problem(self._schema, services.find_schema_problem, content)

    def _describe(self) -> str:
        about = " about this conversation" if self.scope == "thread" else " about the user, in all conversations"
        form = (
            f"Its content fits this JSON Schema: {msgspec.json.encode(self._schema).decode()}" if self._schema else ""
        )
        tools = " or ".join(self._names) or "the tools that you have"
        return _INSTRUCTIONS.format(about=about, tools=tools, form=form).strip()

    async def _update(self, context: ToolContext, given: dict[str, Any]) -> ToolResult:
        memory: StoredWorkingMemory = context.values[self._key]
        try:
            await memory.update(given["memory"], call=context.key)
        except InvalidInput as error:
            return self._result(context, str(error))
        return self._result(context)

    async def _edit(self, context: ToolContext, given: dict[str, Any]) -> ToolResult:
        memory: StoredWorkingMemory = context.values[self._key]
        text, search = given["new_memory"], given.get("search_string") or ""
        reason = cast("UpdateReason", given.get("update_reason", "append-new-memory"))
        try:
            if reason == "append-new-memory":
                await memory.append(text, call=context.key)
            elif not search.strip():
                return self._result(context, f"update_reason is {reason}, which needs search_string")
            elif reason == "replace-irrelevant-memory" and self.scope == "resource":
                return self._result(context, _NOT_IRRELEVANT)
            else:
                await memory.find_and_replace(search, text, call=context.key)
        except Corrupt as error:
            return self._result(context, f"{error}; write it anew with {TOOL_NAMES[0]}")
        except (InvalidInput, NotInMemory) as error:
            return self._result(context, str(error))
        return self._result(context)

    def _result(self, context: ToolContext, error: str = "") -> ToolResult:
        ids: MemoryMeta = context.values[f"{self._key}/ids"]
        value = {
            "success": not error,
            "thread_id": ids.thread_id,
            "resource_id": ids.resource_id,
            "scope": self.scope,
            **({"error": error} if error else {}),
        }
        return text_result(context, msgspec.json.encode(value).decode(), failed=bool(error), value=value)


_numbers = itertools.count()
_NOT_IRRELEVANT = (
    "this working memory is about the user in all conversations, so nothing in it is irrelevant; add a text with "
    "append-new-memory, or correct one with clarify-existing-memory"
)
