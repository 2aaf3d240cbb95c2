"""A tool written in Luau: ``invoke(ctx, args)``."""

import re
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec

from vaka.core.loop.nest import Nest, Request
from vaka.core.loop.nested import ended, nested
from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import InvalidInput, ScriptError
from vaka.core.types.ids import JSON
from vaka.core.types.tool import Arguments, Problem, ToolSpec
from vaka.luau import prelude
from vaka.luau.bytecode import Bytecode
from vaka.luau.compat import surface_functions
from vaka.luau.host.parts import Parts
from vaka.luau.lent import Lent
from vaka.luau.limits import ScriptLimits
from vaka.luau.packages.required import packages_near
from vaka.luau.place import furnish
from vaka.luau.program import OWN_LIBRARY, Program, read_source
from vaka.luau.require import read_library
from vaka.luau.scheduler import drive

_COMMENT = re.compile(r"\A(?:\s*--!\w+[^\n]*\n)*((?:\s*--(?!\[\[|!)[^\n]*\n)+)")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


class Source:
    """A script on its way to becoming a program: read and compiled now, its library when it first runs."""

    def __init__(
        self, script: "str | Path", libs: Sequence["str | Path"] = (), limits: ScriptLimits | None = None,
        *, trusted: bool = True,
    ) -> None:  # fmt: skip
        """``script`` is a file, or the text of a script: what has a line break or a blank is text."""
        file = isinstance(script, Path) or not re.search(r"\s", script)
        self.path = Path(script) if file else None
        self.text = read_source(self.path) if self.path else str(script)
        self.name = self.path.name if self.path else "script.luau"
        self._libs, self._limits, self.trusted = tuple(libs), limits, trusted
        self._stateful = False
        self._program: Program | None = None
        Bytecode().compile(self.text, self.name, 2)

    @property
    def comment(self) -> str:
        """The comment the script begins with, as one text."""
        found = _COMMENT.match(self.text + "\n")
        lines = found[1].splitlines() if found else []
        return " ".join(line.strip().lstrip("-").strip() for line in lines).strip()

    async def program(self) -> Program:
        """Return the script with its library and the surfaces it uses."""
        if self._program is None:
            packages = packages_near((self.path.parent if self.path else Path()).resolve())
            library = await read_library(self._libs, self.text, packages, own=(OWN_LIBRARY,))
            sources = [self.text, *(module.source for module in library.modules.values())]
            self._stateful = prelude.uses_state(sources)
            self._program = Program(
                self.text, self.name, library, preludes=(prelude.prelude(prelude.surfaces_of(sources)),),
                main=prelude.main(), limits=self._limits or ScriptLimits(), trusted=self.trusted,
            )  # fmt: skip
        return self._program

    def given(self, mode: str, nest: Nest) -> dict[str, JSON]:
        """Return what the script is told of where it is."""
        turn = nest.turn
        return {
            "mode": mode, "name": turn.recipe.name, "model": turn.recipe.model.name, "state_id": turn.session,
            "state": True if self._stateful else None, "request_id": turn.id, "user_id": "",
            "trace_id": turn.id,
        }  # fmt: skip


class LuauTool:
    """A tool that is a script. Give it to an agent as any other tool; what it does is in the session's log.

    ``params`` is a JSON Schema, or only its properties. ``trusted`` scripts run in this process, others in a worker.
    """

    def __init__(
        self, script: "str | Path", *, name: str = "", description: str = "", params: dict[str, Any] | None = None,
        libs: Sequence["str | Path"] = (), limits: ScriptLimits | None = None, **more: Any,
    ) -> None:  # fmt: skip
        """Read and compile a script. Also takes ``trusted``, ``timeout`` and ``layer``."""
        timeout, layer = more.pop("timeout", None), more.pop("layer", "code")
        self.source = Source(script, libs, limits, trusted=more.pop("trusted", True))
        if more:
            raise InvalidInput(f"a Luau tool has no setting {next(iter(more))!r}")
        self.name = name or (self.source.path.stem if self.source.path else "")
        if not _NAME.fullmatch(self.name):
            raise InvalidInput(f"a Luau tool needs a name of letters, digits, - and _, got {self.name!r}")
        self.spec = ToolSpec(
            name=self.name, description=description or self.source.comment or f"Run {self.source.name}.",
            parameters=_schema(params), effect="resume", timeout=timeout, layer=layer,
        )  # fmt: skip

    def bind(self, lent: Lent) -> "BoundTool":
        """Return the tool with what the runtime lends it."""
        return BoundTool(self, lent)

    def __repr__(self) -> str:
        return f"LuauTool({self.name!r})"


class BoundTool:
    """A Luau tool at work; implements ``Tool``."""

    def __init__(self, tool: LuauTool, lent: Lent) -> None:
        self._source, self.spec = tool.source, tool.spec
        self._lent = lent if tool.source.trusted else lent.to_strangers()
        self._read = lent.reader(self.spec.parameters)

    def parse(self, raw: "str | dict[str, Any]") -> Arguments | Problem:
        """Return the arguments ``raw`` stands for, or what is wrong with them."""
        return self._read(raw)

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> JSON:
        """Run the script, or go on with it, and return what it came to."""
        program = await self._source.program()
        name = self.spec.name
        async with nested(context, name, program.digest, {}) as (nest, before):
            if before is not None:
                return _outcome(before.value, before.stop if before.failed else "")
            try:
                value = await self._run(context, program, nest, arguments)
            except ScriptError as error:
                await ended(context, nest, name, None, str(error))
                raise
            await ended(context, nest, name, value)
            return value

    async def _run(self, context: ToolContext, program: Program, nest: Nest, arguments: dict[str, Any]) -> JSON:
        talk = _Talk(context, nest)
        async with AsyncExitStack() as closing:
            own = Parts(input=talk.input, output=talk.output)
            parts = furnish(self._lent, nest, context.path, closing, own, self.spec.layer)
            script = self._lent.home.open(program, lambda line: context.emit(f"{line}\n"))
            given = self._source.given("tool", nest)
            values = await drive(script, surface_functions(parts), nest, [given, arguments])
        value, error, where = [*values, None, None, None][:3]
        if where == "nothing":
            raise ScriptError("tool did not call output")
        return _outcome(value, "" if error is None else str(error))


class _Talk:
    """A tool that says something and wants to hear more: whoever is asked answers."""

    def __init__(self, context: ToolContext, nest: Nest) -> None:
        self._context, self._nest = context, nest
        self._said: JSON = None

    async def output(self, value: JSON, error: str | None) -> None:
        self._said = value if error is None else error

    async def input(self, request: Request) -> JSON:
        said = self._said if isinstance(self._said, str) else msgspec.json.encode(self._said).decode()
        answer = await self._nest.ask(request, said if self._said is not None else f"{self._context.call} wants more")
        if answer is None:
            raise ScriptError("input: nobody answered")
        return answer


def _outcome(value: JSON, error: str) -> JSON:
    if error:
        raise ScriptError(error)
    return value


def _schema(params: dict[str, Any] | None) -> dict[str, Any]:
    if params is None:
        return {"type": "object", "properties": {}, "additionalProperties": True}
    if params.get("type") == "object" or "$ref" in params or "anyOf" in params:
        return {"properties": {}, **params}
    wrong = [name for name, schema in params.items() if not isinstance(schema, dict)]
    if wrong:
        raise InvalidInput(f"params: {wrong[0]!r} must be a JSON Schema, got {params[wrong[0]]!r}")
    required = [name for name, schema in params.items() if "default" not in schema and not schema.get("optional")]
    properties = {
        name: {key: part for key, part in schema.items() if key != "optional"} for name, schema in params.items()
    }
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
