"""Structured output: the JSON Schema sent to the model, and parsing of its answer into a value."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

import msgspec

from vaka.core.types.errors import InvalidInput, TurnError
from vaka.core.types.tool import InvalidArguments
from vaka.tools.arguments import parse_json, without_nulls
from vaka.tools.schema.json_schema import SchemaWriter
from vaka.tools.schema.json_types import UnsupportedType
from vaka.tools.schema.type_reader import TypeReader
from vaka.tools.validate import Validator

INVALID_OUTPUT = "invalid_output"
"""The code of the error that an answer of another shape is."""

_CODE_FENCE = re.compile(r"\A\s*```[a-zA-Z]*\s*\n(.*?)\n?```\s*\Z", re.DOTALL)
_VALUE_KEY = "value"
"""Where a value stands that is no object: providers want one around everything."""
_CONVERT_ERRORS = (ValueError, TypeError, ArithmeticError, LookupError)


def schema_for(output: Any) -> "OutputSchema":
    """Return the shape of a type or a schema; that of a type is worked out once."""
    return OutputSchema(output) if isinstance(output, Mapping) else _cached_schema_for(output)


@lru_cache(maxsize=256)
def _cached_schema_for(output: Any) -> "OutputSchema":
    return OutputSchema(output)


class OutputSchema:
    """What an answer is to be: a JSON Schema, or a type such as a dataclass, TypedDict, Struct or pydantic model."""

    def __init__(self, output: Any) -> None:
        """Read what is wanted; raise ``InvalidInput`` when JSON cannot express it."""
        self._type: Any = None
        if isinstance(output, Mapping):
            self.schema, self.name = dict(cast("Mapping[str, Any]", output)), "answer"
        else:
            self.schema, self.name = (
                self._schema_of_type(output),
                re.sub(r"\W", "_", getattr(output, "__name__", "answer"))[:64],
            )
        self._is_wrapped = self.schema.get("type") != "object" and not isinstance(output, Mapping)
        if self._is_wrapped:
            self.schema = _wrap_in_object(self.schema)
        self._validator = Validator(self.schema)
        self._validator.compile()

    @property
    def options(self) -> dict[str, Any]:
        """The model options that ask for it."""
        return {"output": {"schema": self.schema, "name": self.name or "answer"}}

    def extract_json(self, text: str) -> str:
        """Return the JSON of an answer, without the fence some models put around it."""
        fenced = _CODE_FENCE.match(text)
        return fenced.group(1) if fenced else text.strip()

    def parse(self, text: str) -> Any:
        """Return the value an answer stands for. Raises ``TurnError`` with the code ``invalid_output``."""
        found = parse_json(self.extract_json(text))
        if isinstance(found, InvalidArguments):
            raise TurnError(f"the answer is not JSON: {found.message}", code=INVALID_OUTPUT)
        value = without_nulls(found[0], self.schema, self.schema)
        faults = self._validator.find_faults(value)
        if faults:
            said = "; ".join(fault.replace("arguments", "answer", 1) for fault in faults)
            raise TurnError(f"the answer has another shape: {said}", code=INVALID_OUTPUT)
        if self._is_wrapped:
            value = value[_VALUE_KEY]
        if self._type is None:
            return value
        try:
            return self._type.convert(value)
        except _CONVERT_ERRORS as error:
            raise TurnError(f"the answer cannot be used: {error}", code=INVALID_OUTPUT) from error

    def _schema_of_type(self, output: Any) -> dict[str, Any]:
        writer = SchemaWriter()
        try:
            self._type = TypeReader().read(output)
            schema = writer.with_defs(writer.write(self._type))
        except UnsupportedType as error:
            raise InvalidInput(f"output: {error}") from error
        ref = str(schema.get("$ref", "")).removeprefix("#/$defs/")
        defs: dict[str, Any] = schema.get("$defs", {})
        if ref not in defs:
            return schema
        if f'"#/$defs/{ref}"'.encode() not in msgspec.json.encode(defs):  # else it holds others of its kind
            defs = {name: part for name, part in defs.items() if name != ref}
        root: dict[str, Any] = schema["$defs"][ref]
        return {**root, "$defs": defs} if defs else root


def _wrap_in_object(schema: dict[str, Any]) -> dict[str, Any]:
    inner = {name: part for name, part in schema.items() if name != "$defs"}
    whole = {
        "type": "object",
        "properties": {_VALUE_KEY: inner},
        "required": [_VALUE_KEY],
        "additionalProperties": False,
    }
    return {**whole, "$defs": schema["$defs"]} if "$defs" in schema else whole
