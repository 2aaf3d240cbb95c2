"""Shared by built-in tools: the decorator, descriptions from ``.md`` files, and stored outputs that Read opens."""

import re
from collections.abc import Callable
from functools import cached_property
from importlib import resources
from typing import Any

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.core.types.ids import JSON, Digest
from vaka.core.types.message import Stored, Text, ToolResult, replace_surrogates
from vaka.core.types.tool import Effect, InvalidArguments, ParsedArguments, ToolSpec
from vaka.core.types.traits import NO_TRAITS, ToolTraits
from vaka.tools.function import FunctionTool, ToolReturn, tool
from vaka.tools.schema.json_types import is_array, is_object

LAYER = "builtin"

_TRUE_WORDS, _FALSE_WORDS = ("true", "yes", "1", 1), ("false", "no", "0", 0)


class BuiltinTool:
    """A tool of vaka's own: a function, described by the ``.md`` file with its name beside its module."""

    def __init__(self, function: FunctionTool[..., Any], module: str, traits: ToolTraits = NO_TRAITS) -> None:
        self._function, self.traits = function, traits
        self._package, _, self._file = module.rpartition(".")
        self.name = function.name

    def __repr__(self) -> str:
        return f"BuiltinTool({self.name!r})"

    @cached_property
    def spec(self) -> ToolSpec:
        """The tool as models, rules and people see it."""
        description = resources.files(self._package).joinpath(f"{self._file}.md").read_text("utf-8").strip()
        return msgspec.structs.replace(self._function.spec, description=description, layer=LAYER)

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        """Parse arguments; numbers and booleans written as text are converted where the schema wants them."""
        parameters, parsed = self._function.spec.parameters, self._function.parse(raw)
        if isinstance(parsed, ParsedArguments):
            return _convert_integral_floats(parsed, parameters)
        plain = _decode_object(raw)
        arguments, repairs = _repair_types(plain, parameters) if plain is not None else ({}, [])
        repaired = self._function.parse(arguments) if repairs else parsed
        if not isinstance(repaired, ParsedArguments):
            return parsed
        return _convert_integral_floats(ParsedArguments(repaired.value, "; ".join(repairs)), parameters)

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> ToolReturn:
        """Call the function."""
        return await self._function.call(context, arguments)


def builtin_tool(
    name: str,
    *,
    effect: Effect,
    timeout: float | None = 60.0,
    poll: bool = False,
    parameters: dict[str, Any] | None = None,
    traits: ToolTraits = NO_TRAITS,
) -> Callable[[Callable[..., Any]], BuiltinTool]:
    """Make a built-in tool of a function: ``@builtin_tool("Read", effect="read")``."""

    def make(function: Callable[..., Any]) -> BuiltinTool:
        inner: FunctionTool[..., Any] = tool(
            function, name=name, effect=effect, timeout=timeout, poll=poll, parameters=parameters
        )
        return BuiltinTool(inner, f"{function.__module__.rpartition('.')[0]}.{function.__name__}", traits)

    return make


def text_result(context: ToolContext, text: str, value: JSON) -> ToolResult:
    """Return a result with a text for the model and ``value`` for programs."""
    return ToolResult(call=context.call, content=(Text(text=replace_surrogates(text)),), value=value)


def cut_text(text: str, most: int, where: str = "") -> str:
    """Return a text cut after ``most`` characters, with a note of how many more there are."""
    more = len(text) - most
    return f"{text[:most]}… [{more} more characters{where}]" if more > 0 else text


def _decode_object(raw: "str | dict[str, Any]") -> dict[str, Any] | None:
    if not isinstance(raw, str):
        return raw
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if is_object(value) else None


def _convert_integral_floats(parsed: ParsedArguments, schema: dict[str, Any]) -> ParsedArguments:
    """Replace 3.0 by 3 where the schema wants an integer: in JSON both are the same number."""
    types = _property_types(schema)
    integers = {
        key: int(item)
        for key, item in parsed.value.items()
        if isinstance(item, float) and item.is_integer() and "integer" in types.get(key, ())
    }
    return ParsedArguments({**parsed.value, **integers}, parsed.repaired) if integers else parsed


def _property_types(schema: dict[str, Any]) -> dict[str, list[Any]]:
    kinds = {key: part.get("type") for key, part in schema.get("properties", {}).items() if is_object(part)}
    return {key: kind if is_array(kind) else [kind] for key, kind in kinds.items()}


def _repair_types(value: dict[str, Any], schema: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Replace ``"3"`` by 3 and ``"yes"`` by true where the schema wants that; also return descriptions of it."""
    types = _property_types(schema)
    arguments = {key: _repair_value(item, types.get(key, [])) for key, item in value.items()}
    repairs = [
        f"{key} {item!r} read as {arguments[key]!r}" for key, item in value.items() if arguments[key] is not item
    ]
    return arguments, repairs


def _repair_value(item: Any, kinds: list[Any]) -> Any:
    if "integer" in kinds and isinstance(item, str) and item.strip().lstrip("-").isdecimal() and len(item) < 20:
        return int(item)
    if "boolean" in kinds and isinstance(item, str | int) and not isinstance(item, bool):
        word = item.strip().lower() if isinstance(item, str) else item
        return True if word in _TRUE_WORDS else False if word in _FALSE_WORDS else item
    return item


OUTPUT_PREFIX = "output:"
HOW_TO_READ = "give that to Read as file_path, or to read_output"
"""An agent without Read gets ``read_output`` once a text is shown in part."""

PREVIEW_HEAD, PREVIEW_TAIL = 2_000, 2_000
"""Characters shown of the beginning and of the end."""

_OUTPUT_NAME = re.compile(r"output:([0-9a-f]{64})\Z")


def output_name_of(digest: Digest) -> str:
    """Return the name under which Read finds a stored text."""
    return f"{OUTPUT_PREFIX}{digest}"


def output_digest_of(name: str) -> Digest | None:
    """Return the digest in the name of a stored text, ``None`` for other names."""
    found = _OUTPUT_NAME.match(name.strip())
    return Digest(found[1]) if found else None


async def store_output(
    context: ToolContext, text: str, *, head: int = PREVIEW_HEAD, tail: int = PREVIEW_TAIL
) -> Stored:
    """Store a text and return a part with its beginning, its end, and the name by which Read opens it."""
    part = await context.store_text(text)
    text = await context.load_text(part.blob)  # secrets are removed before the text is cut
    left, end = len(text) - head - tail, len(text) - tail
    if left > 0:
        lines, name = text.count("\n", head, end), output_name_of(part.blob)
        note = f"[… {left} characters ({lines} lines) left out; the whole is {name}: {HOW_TO_READ} …]"
        text = f"{text[:head]}\n{note}\n{text[end:]}"
    return msgspec.structs.replace(part, preview=text)
