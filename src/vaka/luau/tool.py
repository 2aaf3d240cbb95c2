"""A tool written in Luau: ``invoke(ctx, args)``."""

import re
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.script_journal import ScriptJournal, ScriptRequest
from vaka.core.loop.subagent import open_script_journal, record_script_end
from vaka.core.ports.agent import AgentServices
from vaka.core.ports.tool import ToolContext
from vaka.core.ports.values import session_values_prefix
from vaka.core.types.errors import InvalidInput, ScriptError
from vaka.core.types.ids import JSON, AgentPath
from vaka.core.types.keywords import suggest_keywords
from vaka.core.types.tool import Effect, InvalidArguments, ParsedArguments, ToolSpec
from vaka.luau.header import read_header
from vaka.luau.host import surface_functions
from vaka.luau.program import BytecodeCache, Program, ScriptLimits, build_program, read_source
from vaka.luau.scheduler import drive, size_of
from vaka.luau.services import ScriptIo, ScriptServices, make_script_services
from vaka.luau.session_host import build_host_services

_LEADING_COMMENT = re.compile(r"\A(?:\s*--!\w+[^\n]*\n)*((?:\s*--(?!\[\[|!)[^\n]*\n)+)")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")

MAX_RESULT_CHARS = 4 << 20
"""The size of a tool's result: reading it for secrets blocks the event loop."""

StorageScope: TypeAlias = Literal["script", "session", "shared"]
"""Who shares ``kvs`` and ``cache``: all runs of one script, its runs in one session, or all scripts."""
_STORAGE_SCOPES = ("script", "session", "shared")


class ScriptSource:
    """A script that is read and compiled at once; its library is read when it first runs."""

    def __init__(
        self,
        script: "str | Path",
        libs: Sequence["str | Path"] = (),
        limits: ScriptLimits | None = None,
        *,
        trusted: bool,
        owner: str = "",
        storage: StorageScope = "script",
    ) -> None:
        """``script`` is a path, or the text of a script: a string that contains white space is text.

        ``owner`` is the kind and name of its tool or agent. Raises ``InvalidInput`` for an unknown ``storage``.
        """
        if storage not in _STORAGE_SCOPES:
            raise InvalidInput(f"storage must be one of {', '.join(_STORAGE_SCOPES)}, not {storage!r}")
        is_file = isinstance(script, Path) or not re.search(r"\s", script)
        self.path = Path(script) if is_file else None
        self.text = read_source(self.path) if self.path else str(script)
        self.name = self.path.name if self.path else f"{owner.partition(' ')[2] or 'script'}.luau"
        self._libs, self._limits = tuple(libs), limits
        self.trusted = trusted
        self._owner, self._storage = owner, storage
        self._program: Program | None = None
        BytecodeCache().compile(self.text, self.name, 2)

    @property
    def leading_comment(self) -> str:
        """The comment at the start of the script, as one line."""
        match = _LEADING_COMMENT.match(self.text + "\n")
        lines = match[1].splitlines() if match else []
        return " ".join(line.strip().lstrip("-").strip() for line in lines).strip()

    async def program(self) -> Program:
        """Return the script with its library and the surfaces it uses."""
        if self._program is None:
            self._program = await build_program(
                self.text, self.name, self._libs, limits=self._limits, trusted=self.trusted
            )
        return self._program

    def startup_info(
        self, mode: str, program: Program, journal: ScriptJournal, path: AgentPath, user: str
    ) -> dict[str, JSON]:
        """Return what ``ctx.agent`` and ``ctx.runtime`` tell the script; see ``main_source``.

        ``path`` names its agent; ``user`` is the default of ``user_id``.
        """
        turn = journal.turn
        return {
            "mode": mode,
            "name": turn.recipe.name,
            "model": turn.recipe.model.name,
            "state_id": "/agent-".join((turn.session, *path)),
            "state": program.uses_state or None,
            "request_id": turn.id,
            "user_id": journal.constant("user_id", _user_of(turn) or user),
            "trace_id": turn.id,
        }

    def storage_prefix(self, session: str) -> str:
        """Return the prefix of the keys of ``kvs`` and ``cache``; trusted and untrusted scripts share nothing."""
        trust = "trusted" if self.trusted else "untrusted"
        if self._storage == "shared":
            return f"script/{trust}/shared/"
        identity = str(self.path.resolve()) if self.path else self._owner
        prefix = f"script/{trust}/{quote(identity, safe='')}/"
        return prefix if self._storage == "script" else session_values_prefix(session) + prefix


def _user_of(turn: Turn) -> str:
    """Return the user in the metadata of a session, as given, or as the user of a terminal."""
    metadata = turn.metadata
    user = metadata.get("user_id") or metadata.get("mode", {}).get("cli", {}).get("user")
    return user if isinstance(user, str) else ""


class LuauTool:
    """A tool that is a script. Give it to an agent as any other tool; what it does is in the session's log.

    ``params`` is a JSON Schema, or only its properties. ``trusted`` scripts run in this process, others in a worker;
    by default scripts of definitions are not trusted. ``effect`` is what a second run would do; default:
    ``resume``, the script continues from the log. A script can declare ``description``, ``params`` and ``effect``.
    ``storage`` is who shares its ``kvs`` and ``cache``: all runs of this ``script``, those in one ``session``, or all
    scripts (``shared``).
    """

    @suggest_keywords
    def __init__(  # noqa: PLR0913  # a public constructor spells out every option
        self,
        script: "str | Path",
        *,
        name: str = "",
        description: str = "",
        params: dict[str, Any] | None = None,
        libs: Sequence["str | Path"] = (),
        limits: ScriptLimits | None = None,
        trusted: bool | None = None,
        timeout: float | None = None,
        layer: str = "code",
        storage: StorageScope = "script",
        effect: Effect | None = None,
    ) -> None:
        """Read and compile a script."""
        trusted = layer == "code" if trusted is None else trusted
        self.source = ScriptSource(script, libs, limits, trusted=trusted, owner=f"tool {name}", storage=storage)
        self.name = name or (self.source.path.stem if self.source.path else "")
        if not _NAME.fullmatch(self.name):
            raise InvalidInput(f"a Luau tool needs a name of letters, digits, - and _, got {self.name!r}")
        header = read_header(self.source.text, self.source.name, trusted=self.source.trusted)
        description = description or header.description or self.source.leading_comment or f"Run {self.source.name}."
        self.spec = ToolSpec(
            name=self.name,
            description=description,
            timeout=timeout,
            layer=layer,
            parameters=_parameter_schema(params if params is not None else header.params),
            effect=effect or header.effect or "resume",
        )

    def bind(self, services: AgentServices) -> "BoundLuauTool":
        """Return the tool connected to the runtime's services."""
        return BoundLuauTool(self, make_script_services(services))

    def __repr__(self) -> str:
        return f"LuauTool({self.name!r})"


class BoundLuauTool:
    """A Luau tool with the services it runs with; implements ``Tool``."""

    def __init__(self, tool: LuauTool, services: ScriptServices) -> None:
        self._source, self.spec = tool.source, tool.spec
        self._services = services if tool.source.trusted else services.for_untrusted()
        self._parse_arguments = services.argument_parser(self.spec.parameters)

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        return self._parse_arguments(raw)

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> JSON:
        """Run the script, or resume it after a crash, and return its result."""
        program = await self._source.program()
        name = self.spec.name
        async with open_script_journal(context, name, program.digest, {}) as (journal, earlier_end):
            if earlier_end is not None:
                return _value_or_raise(earlier_end.value, earlier_end.stop if earlier_end.failed else "")
            try:
                value = await self._run(context, program, journal, arguments)
            except ScriptError as error:
                await record_script_end(context, journal, name, None, str(error))
                raise
            await record_script_end(context, journal, name, value)
            return value

    async def _run(
        self, context: ToolContext, program: Program, journal: ScriptJournal, arguments: dict[str, Any]
    ) -> JSON:
        conversation = _ToolConversation(context, journal)
        async with AsyncExitStack() as exit_stack:
            io = ScriptIo(input=conversation.input, output=conversation.output)
            storage = self._source.storage_prefix(journal.turn.session)
            host = build_host_services(self._services, journal, context.path, exit_stack, io, storage, self.spec.layer)
            script = self._services.runner.open(program, lambda line: context.emit(f"{line}\n"))
            startup_info = self._source.startup_info("tool", program, journal, context.path, self._services.user)
            values = await drive(script, surface_functions(host), journal, [startup_info, arguments])
        value, error = [*values, None, None][:2]
        size = size_of(value)
        if size > MAX_RESULT_CHARS:
            raise ScriptError(f"{program.name}: the result has {size} characters; expected at most {MAX_RESULT_CHARS}")
        return _value_or_raise(value, "" if error is None else str(error))


class _ToolConversation:
    """The ``input`` and ``output`` of a tool: each ``input`` asks a person, showing the last output."""

    def __init__(self, context: ToolContext, journal: ScriptJournal) -> None:
        self._context, self._journal = context, journal
        self._last_output: JSON = None

    async def output(self, value: JSON, error: str | None) -> None:
        self._last_output = value if error is None else error

    async def input(self, request: ScriptRequest) -> JSON:
        question = self._last_output
        if question is None:
            question = f"{self._context.call} wants more"
        elif not isinstance(question, str):
            question = msgspec.json.encode(question).decode()
        answer = await self._journal.ask_person(request, question)
        if answer is None:
            raise ScriptError("input: the question was not answered")
        return answer


def _value_or_raise(value: JSON, error: str) -> JSON:
    if error:
        raise ScriptError(error)
    return value


def _parameter_schema(params: dict[str, Any] | None) -> dict[str, Any]:
    if params is None:
        return {"type": "object", "properties": {}, "additionalProperties": True}
    if params.get("type") == "object" or "$ref" in params or "anyOf" in params:
        return {"properties": {}, **params}
    for name, schema in params.items():
        if not isinstance(schema, dict):
            raise InvalidInput(f"params: {name!r} must be a JSON Schema, got {schema!r}")
    required = [name for name, schema in params.items() if "default" not in schema and not schema.get("optional")]
    properties = {
        name: {key: part for key, part in schema.items() if key != "optional"} for name, schema in params.items()
    }
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
