"""Shared by built-in tools: the decorator, descriptions from ``.md`` files, and stored outputs that Read opens."""

import re
from collections.abc import Callable
from functools import cached_property
from importlib import resources
from typing import Any

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.core.types.ids import Digest
from vaka.core.types.message import Stored
from vaka.core.types.tool import Effect, InvalidArguments, ParsedArguments, ToolSpec
from vaka.tools.function import FunctionTool, ToolReturn, tool
from vaka.tools.schema.json_types import is_array, is_object

LAYER = "builtin"

_TRUE_WORDS, _FALSE_WORDS = ("true", "yes", "1", 1), ("false", "no", "0", 0)


class BuiltinTool:
    """A tool of vaka's own: a function, described by the ``.md`` file beside its module."""

    def __init__(self, function: FunctionTool[..., Any], module: str) -> None:
        self._function = function
        self._package, _, self._file = module.rpartition(".")
        self.name = function.name

    def __repr__(self) -> str:
        return f"Builtin({self.name!r})"

    @cached_property
    def spec(self) -> ToolSpec:
        """The tool as models, rules and people see it."""
        words = resources.files(self._package).joinpath(f"{self._file}.md").read_text("utf-8").strip()
        return msgspec.structs.replace(self._function.spec, description=words, layer=LAYER)

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        """Return the arguments ``raw`` stands for; numbers and truths written as words are taken for what they mean."""
        read = self._function.parse(raw)
        if isinstance(read, ParsedArguments):
            return _convert_integral_floats(read, self._function.spec.parameters)
        plain = _decode_object(raw)
        mended, said = _repair_types(plain, self._function.spec.parameters) if plain is not None else ({}, [])
        again = self._function.parse(mended) if said else read
        if not isinstance(again, ParsedArguments):
            return read
        return _convert_integral_floats(ParsedArguments(again.value, "; ".join(said)), self._function.spec.parameters)

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> ToolReturn:
        """Call the function."""
        return await self._function.call(context, arguments)


def builtin_tool(
    name: str, *, effect: Effect, timeout: float | None = 60.0, poll: bool = False,
    parameters: dict[str, Any] | None = None,
) -> Callable[[Callable[..., Any]], BuiltinTool]:  # fmt: skip
    """Make a built-in tool of a function: ``@declare("Read", effect="read")``."""

    def make(function: Callable[..., Any]) -> BuiltinTool:
        made = tool(function, name=name, effect=effect, timeout=timeout, poll=poll, parameters=parameters)
        return BuiltinTool(made, f"{function.__module__.rpartition('.')[0]}.{function.__name__}")

    return make


def _decode_object(raw: "str | dict[str, Any]") -> dict[str, Any] | None:
    if not isinstance(raw, str):
        return raw
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if is_object(value) else None


def _convert_integral_floats(parsed: ParsedArguments, schema: dict[str, Any]) -> ParsedArguments:
    """Return the arguments with 3.0 as 3 where the schema wants an integer: for JSON both are the same number."""
    properties: dict[str, Any] = schema.get("properties", {})
    found = {
        key: int(item)
        for key, item in parsed.value.items()
        if isinstance(item, float) and item.is_integer() and _accepts_integer(properties.get(key))
    }
    return ParsedArguments({**parsed.value, **found}, parsed.repaired) if found else parsed


def _accepts_integer(schema: Any) -> bool:
    return is_object(schema) and "integer" in (kind if is_array(kind := schema.get("type")) else [kind])


def _repair_types(value: dict[str, Any], schema: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments with ``"3"`` as 3 and ``"yes"`` as true where the schema wants that, and what was done."""
    mended: dict[str, Any] = {}
    said: list[str] = []
    properties: dict[str, Any] = schema.get("properties", {})
    for key, item in value.items():
        wanted = properties.get(key)
        mended[key] = _repair_value(item, wanted.get("type")) if is_object(wanted) else item
        if mended[key] is not item:
            said.append(f"{key} {item!r} read as {mended[key]!r}")
    return mended, said


def _repair_value(item: Any, kind: Any) -> Any:
    kinds: list[Any] = kind if is_array(kind) else [kind]
    if "integer" in kinds and isinstance(item, str) and item.strip().lstrip("-").isdecimal() and len(item) < 20:
        return int(item)
    if "boolean" in kinds and isinstance(item, str | int) and not isinstance(item, bool):
        word = item.strip().lower() if isinstance(item, str) else item
        return True if word in _TRUE_WORDS else False if word in _FALSE_WORDS else item
    return item


OUTPUT_PREFIX = "output:"

PREVIEW_HEAD, PREVIEW_TAIL = 2_000, 2_000
"""Characters that are shown of the beginning and of the end."""

_OUTPUT_NAME = re.compile(r"output:([0-9a-f]{64})\Z")


def output_name_of(digest: Digest) -> str:
    """Return the name under which ``Read`` finds a text that was put away."""
    return f"{OUTPUT_PREFIX}{digest}"


def output_digest_of(name: str) -> Digest | None:
    """Return the digest that a name stands for, ``None`` when it is the name of something else."""
    found = _OUTPUT_NAME.match(name.strip())
    return Digest(found[1]) if found else None


async def store_output(
    context: ToolContext, text: str, *, head: int = PREVIEW_HEAD, tail: int = PREVIEW_TAIL
) -> Stored:
    """Keep a text and return a part that shows how it begins and ends, and says how to read the rest."""
    part = await context.store_text(text)
    kept = await context.load_text(part.blob)  # without secrets, of which a cut could leave half
    return msgspec.structs.replace(part, preview=preview_text(kept, output_name_of(part.blob), head=head, tail=tail))


def preview_text(text: str, name: str, *, head: int = PREVIEW_HEAD, tail: int = PREVIEW_TAIL) -> str:
    """Return the beginning and the end of a text, with the name of the whole between them."""
    left = len(text) - head - tail
    if left <= 0:
        return text
    lines = text.count("\n", head, len(text) - tail)
    said = f"[… {left} characters ({lines} lines) left out; the whole is {name}: give Read that as file_path …]"
    return f"{text[:head]}\n{said}\n{text[len(text) - tail :]}"
