"""The header of a tool's script: its description, parameters and effect, declared in the script itself.

    tool = { description = "…", params = { city = { type = "string" } }, effect = "read" }

Instead, the script may define ``describe()``, which returns the table, or return the table with ``invoke`` in it. To
read the header, the script runs once without its host: what it calls at its top level does nothing.
"""

import asyncio
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args

import msgspec

from vaka.core.types.errors import InvalidInput, ScriptError
from vaka.core.types.ids import JSON
from vaka.core.types.tool import Effect
from vaka.luau.program import MIB, Program, ScriptLimits
from vaka.luau.scheduler import NullJournal, drive
from vaka.luau.services import ScriptEngine

_LIMITS = ScriptLimits(memory=32 * MIB, seconds=1.0)
_DECLARATION = re.compile(
    r"^\s*(?:tool\s*=|function\s+describe\b|describe\s*=)|^return\s*\{[^}]*\b(?:params|description|effect)\s*=",
    re.MULTILINE | re.DOTALL,
)

_READ_HEADER = """
local blank: any = setmetatable({}, {
	__index = function(self) return self end,
	__call = function(self) return self end,
})
ctx, rt, __builtin, require = blank, blank, blank, blank
local script = ...
local returned = script()
local header: any = tool
if type(header) ~= "table" then
	header = if type(describe) == "function" then describe() else returned
end
if type(header) ~= "table" then
	error("tool, or what describe() returns, must be a table with description, params and effect", 0)
end
return { description = header.description, params = header.params, effect = header.effect }
"""


class ToolHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The declarations in the script of a tool."""

    description: str = ""
    params: dict[str, Any] | None = None
    effect: Effect | None = None


def read_header(source: str, name: str, *, trusted: bool) -> ToolHeader:
    """Return the header of a script, empty if it declares none; raise ``InvalidInput`` for an invalid one."""
    if not _DECLARATION.search(source):
        return ToolHeader()
    program = Program(source, name, main=_READ_HEADER, limits=_LIMITS, trusted=trusted)
    with ThreadPoolExecutor(1) as thread:  # the caller may be in an event loop
        try:
            values = thread.submit(asyncio.run, _run(program)).result()
            return msgspec.convert(values[0], ToolHeader)
        except (ScriptError, msgspec.ValidationError) as error:
            raise InvalidInput(f"{name}: the header of the tool cannot be read: {_explain(error)}") from error


async def _run(program: Program) -> Sequence[JSON]:
    engine = ScriptEngine()
    try:
        return await drive(engine.open(program), {}, NullJournal())
    finally:
        await engine.close()


def _explain(error: Exception) -> str:
    text = str(error)
    if text.endswith("$.effect`"):
        return f"effect must be one of {', '.join(get_args(Effect))}: {text}"
    if text.endswith("$.params`"):
        return f"params must be a table of JSON Schemas by name, or one JSON Schema: {text}"
    return text
