"""What all built-in tools have in common: they are vaka's own, and their words are in a file beside them."""

from collections.abc import Callable
from functools import cached_property
from importlib import resources
from typing import Any

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.core.types.tool import Arguments, Effect, Problem, ToolSpec
from vaka.tools.function import FunctionTool, tool
from vaka.tools.output import Returned
from vaka.tools.values import is_array, is_object

LAYER = "builtin"
_TRUE, _FALSE = ("true", "yes", "1", 1), ("false", "no", "0", 0)


class Builtin:
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

    def parse(self, raw: "str | dict[str, Any]") -> Arguments | Problem:
        """Return the arguments ``raw`` stands for; numbers and truths written as words are taken for what they mean."""
        read = self._function.parse(raw)
        if isinstance(read, Arguments):
            return _whole(read, self._function.spec.parameters)
        plain = _plain(raw)
        mended, said = _mended(plain, self._function.spec.parameters) if plain is not None else ({}, [])
        again = self._function.parse(mended) if said else read
        if not isinstance(again, Arguments):
            return read
        return _whole(Arguments(again.value, "; ".join(said)), self._function.spec.parameters)

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> Returned:
        """Call the function."""
        return await self._function.call(context, arguments)


def declare(
    name: str, *, effect: Effect, timeout: float | None = 60.0, poll: bool = False,
    parameters: dict[str, Any] | None = None,
) -> Callable[[Callable[..., Any]], Builtin]:  # fmt: skip
    """Make a built-in tool of a function: ``@declare("Read", effect="read")``."""

    def make(function: Callable[..., Any]) -> Builtin:
        made = tool(function, name=name, effect=effect, timeout=timeout, poll=poll, parameters=parameters)
        return Builtin(made, function.__module__)

    return make


def _plain(raw: "str | dict[str, Any]") -> dict[str, Any] | None:
    if not isinstance(raw, str):
        return raw
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if is_object(value) else None


def _whole(read: Arguments, schema: dict[str, Any]) -> Arguments:
    """Return the arguments with 3.0 as 3 where the schema wants an integer: for JSON both are the same number."""
    properties: dict[str, Any] = schema.get("properties", {})
    found = {
        key: int(item)
        for key, item in read.value.items()
        if isinstance(item, float) and item.is_integer() and _is_integer(properties.get(key))
    }
    return Arguments({**read.value, **found}, read.repaired) if found else read


def _is_integer(schema: Any) -> bool:
    return is_object(schema) and "integer" in (kind if is_array(kind := schema.get("type")) else [kind])


def _mended(value: dict[str, Any], schema: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments with ``"3"`` as 3 and ``"yes"`` as true where the schema wants that, and what was done."""
    mended: dict[str, Any] = {}
    said: list[str] = []
    properties: dict[str, Any] = schema.get("properties", {})
    for key, item in value.items():
        wanted = properties.get(key)
        mended[key] = _meant(item, wanted.get("type")) if is_object(wanted) else item
        if mended[key] is not item:
            said.append(f"{key} {item!r} read as {mended[key]!r}")
    return mended, said


def _meant(item: Any, kind: Any) -> Any:
    kinds: list[Any] = kind if is_array(kind) else [kind]
    if "integer" in kinds and isinstance(item, str) and item.strip().lstrip("-").isdecimal() and len(item) < 20:
        return int(item)
    if "boolean" in kinds and isinstance(item, str | int) and not isinstance(item, bool):
        word = item.strip().lower() if isinstance(item, str) else item
        return True if word in _TRUE else False if word in _FALSE else item
    return item
