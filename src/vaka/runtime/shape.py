"""Answers that are data: the schema a model is told, and the value its words are read as."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

import msgspec

from vaka.core.types.errors import InvalidInput, TurnError
from vaka.core.types.tool import Problem
from vaka.tools.annotation import TypeReader
from vaka.tools.arguments import parse_json
from vaka.tools.convert import convert
from vaka.tools.reader import without_nulls
from vaka.tools.schema import SchemaWriter
from vaka.tools.shape import Unsupported
from vaka.tools.validate import Validator

CODE = "invalid_output"
"""The code of the error that an answer of another shape is."""

_FENCE = re.compile(r"\A\s*```[a-zA-Z]*\s*\n(.*?)\n?```\s*\Z", re.DOTALL)
_ONLY = "value"
"""Where a value stands that is no object: providers want one around everything."""
_REFUSALS = (ValueError, TypeError, ArithmeticError, LookupError)


def shape(output: Any) -> "Shape":
    """Return the shape of a type or a schema; that of a type is worked out once."""
    return Shape(output) if isinstance(output, Mapping) else _of_type(output)


@lru_cache(maxsize=256)
def _of_type(output: Any) -> "Shape":
    return Shape(output)


class Shape:
    """What an answer is to be: a JSON Schema, or a type such as a dataclass, TypedDict, Struct or pydantic model."""

    def __init__(self, output: Any) -> None:
        """Read what is wanted; raise ``InvalidInput`` when JSON cannot express it."""
        self._type: Any = None
        if isinstance(output, Mapping):
            self.schema, self.name = dict(cast("Mapping[str, Any]", output)), "answer"
        else:
            self.schema, self.name = self._read(output), re.sub(r"\W", "_", getattr(output, "__name__", "answer"))[:64]
        self._wrapped = self.schema.get("type") != "object" and not isinstance(output, Mapping)
        if self._wrapped:
            self.schema = _wrapped(self.schema)
        self._validator = Validator(self.schema)
        self._validator.compile()

    @property
    def options(self) -> dict[str, Any]:
        """The model options that ask for it."""
        return {"output": {"schema": self.schema, "name": self.name or "answer"}}

    def json(self, text: str) -> str:
        """Return the JSON of an answer, without the fence some models put around it."""
        fenced = _FENCE.match(text)
        return fenced.group(1) if fenced else text.strip()

    def read(self, text: str) -> Any:
        """Return the value an answer stands for. Raises ``TurnError`` with the code ``invalid_output``."""
        found = parse_json(self.json(text))
        if isinstance(found, Problem):
            raise TurnError(f"the answer is not JSON: {found.message}", code=CODE)
        value = without_nulls(found[0], self.schema, self.schema)
        faults = self._validator.faults(value)
        if faults:
            said = "; ".join(fault.replace("arguments", "answer", 1) for fault in faults)
            raise TurnError(f"the answer has another shape: {said}", code=CODE)
        if self._wrapped:
            value = value[_ONLY]
        if self._type is None:
            return value
        try:
            return convert(self._type, value)
        except _REFUSALS as error:
            raise TurnError(f"the answer cannot be used: {error}", code=CODE) from error

    def _read(self, output: Any) -> dict[str, Any]:
        writer = SchemaWriter()
        try:
            self._type = TypeReader().read(output)
            schema = writer.whole(writer.write(self._type))
        except Unsupported as error:
            raise InvalidInput(f"output: {error}") from error
        ref = str(schema.get("$ref", "")).removeprefix("#/$defs/")
        defs: dict[str, Any] = schema.get("$defs", {})
        if ref not in defs:
            return schema
        if f'"#/$defs/{ref}"'.encode() not in msgspec.json.encode(defs):  # else it holds others of its kind
            defs = {name: part for name, part in defs.items() if name != ref}
        root: dict[str, Any] = schema["$defs"][ref]
        return {**root, "$defs": defs} if defs else root


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    inner = {name: part for name, part in schema.items() if name != "$defs"}
    whole = {"type": "object", "properties": {_ONLY: inner}, "required": [_ONLY], "additionalProperties": False}
    return {**whole, "$defs": schema["$defs"]} if "$defs" in schema else whole
