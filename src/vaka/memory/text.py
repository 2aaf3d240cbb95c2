"""Text memory: Markdown files under ``/memories`` that an agent reads and writes, and that outlive its sessions."""

import copy
import itertools
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.agent import AgentServices
from vaka.core.ports.files import Files
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.ports.turn_protocols import ToolSource
from vaka.core.types.errors import ConfigError, FileError, FileMissing, InvalidInput
from vaka.core.types.message import ToolCall, ToolResult
from vaka.core.types.tool import ToolSpec
from vaka.memory import text_commands as commands
from vaka.memory.enclosed_text import enclose_text
from vaka.memory.memory_tool import MemoryTool, object_schema, text_result
from vaka.memory.owner import OpensMemory, encode_name, require_owner
from vaka.memory.text_files import MAX_FILE_BYTES, ROOT, TextMemoryFiles, WriteJournal, check_names, delete_below

VALUES_PREFIX = "memory/text/"
"""The keys of the files of text memories in the store of the sessions."""
AGENT_FILE = "agent.md"
MAX_INJECTED_CHARS = 32_000
TOOL_NAMES = ("memory", "memory_search", "memory_write")

_numbers = itertools.count()

_MEMORY = ToolSpec(
    name="memory",
    description=commands.DESCRIPTION,
    parameters=commands.PARAMETERS,
    effect="idempotent",
    native={"anthropic": commands.NATIVE_TYPE},
)
_SEARCH = ToolSpec(
    name="memory_search",
    effect="read",
    description="Search the files of your memory for a text, whatever its case. Returns the lines that contain it.",
    parameters=object_schema(
        ("query",),
        query={"type": "string", "description": "The text, or with regex a regular expression."},
        regex={"type": "boolean", "default": False},
        namespace={"type": "string", "description": "Search only in this folder, such as projects/x."},
        glob={"type": "string", "description": "Search only in files whose name or path matches, such as *.md."},
        max_results={"type": "integer", "minimum": 1, "maximum": 200, "default": 20},
    ),
)
_WRITE = ToolSpec(
    name="memory_write",
    effect="idempotent",
    description="Write a note to a file of your memory, which stays for later conversations.",
    parameters=object_schema(
        ("file", "content"),
        file={"type": "string", "description": f"The file, such as notes.md or {ROOT}/projects/x.md."},
        content={"type": "string", "description": "The note, as Markdown."},
        title={"type": "string", "description": "The heading of the note; the time by default."},
        mode={
            "type": "string",
            "enum": ["append", "overwrite"],
            "default": "append",
            "description": "append adds the note to the end of the file, overwrite replaces the whole file.",
        },
    ),
)

GUIDE = f"""\
# Memory
You have a memory under {ROOT} that stays when this conversation ends. Look there before you begin work that may \
continue something earlier, and write down what will matter later: decisions, preferences, facts, the state of the \
work. Keep it short and up to date, and correct what is no longer true. {ROOT}/{AGENT_FILE} is shown to you at the \
beginning of every turn: keep in it what you must always know."""


class ErasableMemory(Protocol):
    """A memory that is deleted by its owner."""

    async def erase(self, owner: str, *, namespace: str = "") -> int:
        """Delete the memory of an owner; return the number of files."""
        ...


class TextMemory(Middleware, ToolSource, OpensMemory[TextMemoryFiles], ErasableMemory):
    """Gives an agent a memory of Markdown files, and shows it the file ``agent.md`` at the top of the system prompt.

    Each owner of sessions has a memory of their own; a session without an owner needs ``namespace``, the name of a
    memory that sessions share. ``files`` is where the memories are stored, by default the store of the sessions.
    ``tools`` are the tools it offers: ``memory`` (view, create, str_replace, insert, delete, rename),
    ``memory_search`` and ``memory_write``. Claude models know ``memory`` as a tool of the provider; for a gateway
    that does not, ``native=False`` describes it like any other tool. ``guide`` adds a few sentences on how to use the
    memory to the system prompt.
    """

    def __init__(
        self,
        files: Files | None = None,
        *,
        namespace: str = "",
        tools: Sequence[str] = TOOL_NAMES,
        guide: bool = True,
        native: bool = True,
        max_file_bytes: int = MAX_FILE_BYTES,
    ) -> None:
        unknown = sorted(set(tools) - set(TOOL_NAMES))
        if unknown:
            raise ConfigError(f"TextMemory has no tool {unknown[0]!r}; expected some of {', '.join(TOOL_NAMES)}")
        if getattr(files, "strict", True) is False:
            raise ConfigError("TextMemory follows no links: give it DiskFiles(…, strict=True)")
        if max_file_bytes < 1:
            raise ConfigError(f"max_file_bytes must be at least 1, not {max_file_bytes!r}")
        self._shared = memory_folder("", namespace) if namespace else ""
        self._files, self._max_file_bytes = files, max_file_bytes
        self._guide, self._names = guide, tuple(tools)
        self._memory_spec = _MEMORY if native else msgspec.structs.replace(_MEMORY, native={})
        self._key = f"memory.text/{next(_numbers)}"
        self._services: AgentServices | None = None

    def with_services(self, services: AgentServices) -> "TextMemory":
        bound = copy.copy(self)
        bound._services = services  # noqa: SLF001  # of the same class
        return bound

    def tools(self) -> Sequence[Tool]:
        services = self._services
        if services is None:
            return ()
        made = {
            "memory": MemoryTool(self._memory_spec, services, self._run_command),
            "memory_search": MemoryTool(_SEARCH, services, self._search),
            "memory_write": MemoryTool(_WRITE, services, self._write),
        }
        return [made[name] for name in self._names]

    async def opening_text(self, turn: Turn) -> str:
        """Return what precedes the instructions in the system prompt of a turn: ``agent.md`` and the guide."""
        memory = await self.open(turn)
        try:
            text = (await memory.read_file(AGENT_FILE)).strip()
        except FileMissing:
            text = ""
        except FileError:  # a folder, a link, or not a text: that must not end every turn
            text = f"[{ROOT}/{AGENT_FILE} is not a file with text and cannot be shown; delete it, and write it anew]"
        if len(text) > MAX_INJECTED_CHARS:
            text = f"{text[:MAX_INJECTED_CHARS]}\n[cut here; {ROOT}/{AGENT_FILE} has {len(text)} characters]"
        shown = enclose_text("agent_memory", text, f' path="{ROOT}/{AGENT_FILE}"') if text else ""
        return "\n\n".join(part for part in (shown, GUIDE if self._guide else "") if part)

    async def erase(self, owner: str, *, namespace: str = "") -> int:
        """Delete the memory of an owner from the files that were given; return the number of files.

        ``namespace`` is the runtime's. Memories in the store of the sessions are erased with ``runtime.erase``.
        """
        if self._files is None:
            raise ConfigError("this memory is in the store of the sessions: erase it with runtime.erase(owner=…)")
        return await delete_below(self._files, tenant_folder(namespace, owner_folder(owner)))

    async def before_tool(self, turn: Turn, call: ToolCall) -> ToolCall:
        if call.name in self._names:
            await self.open(turn)
        return call

    async def open(self, turn: Turn) -> TextMemoryFiles:
        """Return the memory of the owner of a turn's session. Raises ``ConfigError`` when there is none."""
        memory: TextMemoryFiles | None = turn.values.get(self._key)
        if memory is None:
            owner = "" if self._shared else await require_owner(turn, "TextMemory", "give TextMemory(namespace=…)")
            memory = turn.values[self._key] = self._make_memory(turn, self._shared or owner_folder(owner))
        return memory

    def _make_memory(self, turn: Turn, folder: str) -> TextMemoryFiles:
        services = self._services
        if services is None:
            raise ConfigError("TextMemory needs the services of a runtime: give it to an Agent as middleware")
        store, files = turn.log.store, self._files
        if files is None:
            files = services.open_value_files(store.values, VALUES_PREFIX)
        else:
            folder = tenant_folder(store.namespace, folder)
        return TextMemoryFiles(
            files,
            folder,
            redact=turn.log.secrets.redact_data,
            now=turn.env.clock.time,
            find_lines=services.find_lines,
            max_file_bytes=self._max_file_bytes,
        )

    def _memory_of(self, context: ToolContext) -> TextMemoryFiles:
        memory: TextMemoryFiles = context.values[self._key]
        return memory

    async def _run_command(self, context: ToolContext, given: dict[str, Any]) -> ToolResult:
        try:
            return text_result(context, await commands.MemoryCommands(self._memory_of(context), context).run(given))
        except commands.FAILURES as error:
            return text_result(context, commands.as_failure(error), failed=True)

    async def _search(self, context: ToolContext, given: dict[str, Any]) -> ToolResult:
        try:
            found = await self._memory_of(context).search(**given)
        except (FileError, InvalidInput) as error:
            return text_result(context, str(error), failed=True)
        lines = [f"{match.path}:{match.line_number}: {match.line}" for match in found.matches]
        more = ["[there are more; search for something more exact, or raise max_results]"] if found.truncated else []
        value = {
            "matches": [
                {"path": match.path, "line_number": match.line_number, "line": match.line} for match in found.matches
            ],
            "truncated": found.truncated,
        }
        return text_result(context, "\n".join([*lines, *more]) or "no matches", value=value)

    async def _write(self, context: ToolContext, given: dict[str, Any]) -> ToolResult:
        memory, journal = self._memory_of(context), WriteJournal(context)
        write = memory.overwrite_with_note if given.get("mode") == "overwrite" else memory.append_note
        try:
            info = await write(given["file"], given["content"], title=given.get("title", ""), journal=journal)
        except (FileError, InvalidInput) as error:
            return text_result(context, str(error), failed=True)
        return text_result(context, f"Written to {info.path}.", value={"path": info.path, "size": info.size})


def memory_folder(owner: str, namespace: str = "") -> str:
    """Return the folder of the memory of an owner, or of a shared one. Raises ``ConfigError`` for a bad namespace."""
    return _shared_folder(namespace) if namespace else owner_folder(owner)


def owner_folder(owner: str) -> str:
    """Return the folder of the memory of an owner."""
    return f"users/{encode_name(owner)}"


def tenant_folder(namespace: str, folder: str) -> str:
    """Return a folder of files that several namespaces of a store share."""
    return f"tenants/{encode_name(namespace)}/{folder}" if namespace else folder


def _shared_folder(namespace: str) -> str:
    try:
        names = check_names(namespace, namespace)
    except FileError as error:
        raise ConfigError(f"the namespace {namespace!r} of a text memory: {error}") from error
    if not names:
        raise ConfigError(f"the namespace {namespace!r} of a text memory names no folder")
    return "/".join(("shared", *map(encode_name, names)))
