"""Structured output: the JSON Schema sent to the model, and parsing of its answer into a value."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

import msgspec

from vaka.core.types.errors import InvalidInput, InvalidOutput, TurnError
from vaka.core.types.tool import InvalidArguments
from vaka.tools.arguments import parse_json, without_nulls
from vaka.tools.schema.json_schema import SchemaWriter
from vaka.tools.schema.json_types import CONVERSION_ERRORS, UnsupportedType
from vaka.tools.schema.type_reader import TypeReader
from vaka.tools.validate import Validator

_CODE_FENCE = re.compile(r"\A\s*```[a-zA-Z]*\s*\n(.*?)\n?```\s*\Z", re.DOTALL)
_VALUE_KEY = "value"
"""The property that holds a value that is not an object: providers require an object at the root."""


def schema_for(output: Any) -> "OutputSchema":
    """Return the output schema of a type or JSON Schema. Schemas of types are cached."""
    return OutputSchema(output) if isinstance(output, Mapping) else _cached_schema_for(output)


@lru_cache(maxsize=256)
def _cached_schema_for(output: Any) -> "OutputSchema":
    return OutputSchema(output)


class OutputSchema:
    """The schema of an answer, from a JSON Schema or a type: dataclass, TypedDict, Struct or pydantic model."""

    def __init__(self, output: Any) -> None:
        """Derive the schema. Raises ``InvalidInput`` for a type that JSON cannot express."""
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
        """The model options that request this output."""
        return {"output": {"schema": self.schema, "name": self.name or "answer"}}

    def extract_json(self, text: str) -> str:
        """Return the JSON of an answer without the code fence that some models add."""
        fenced = _CODE_FENCE.match(text)
        return fenced.group(1) if fenced else text.strip()

    def describe_errors(self, text: str) -> str:
        """Return what is wrong with an answer, ``""`` if it matches the schema."""
        try:
            self.parse(text)
        except TurnError as error:
            return str(error)
        return ""

    def parse(self, text: str) -> Any:
        """Parse an answer and return its value. Raises ``TurnError`` with the code ``invalid_output``."""
        parsed = parse_json(self.extract_json(text))
        if isinstance(parsed, InvalidArguments):
            message = parsed.message.removeprefix("the arguments are not valid JSON: ")
            raise TurnError(f"the answer is not JSON: {message}", code=InvalidOutput.code)
        value = without_nulls(parsed[0], self.schema, self.schema)
        faults = self._validator.find_faults(value)
        if faults:
            details = "; ".join(fault.replace("arguments", "answer", 1) for fault in faults)
            raise TurnError(f"the answer does not match the schema: {details}", code=InvalidOutput.code)
        if self._is_wrapped:
            value = value[_VALUE_KEY]
        if self._type is None:
            return value
        try:
            return self._type.convert(value)
        except CONVERSION_ERRORS as error:
            raise TurnError(f"the answer cannot be used: {error}", code=InvalidOutput.code) from error

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
        if f'"#/$defs/{ref}"'.encode() not in msgspec.json.encode(defs):  # otherwise the type is recursive
            defs = {name: part for name, part in defs.items() if name != ref}
        root: dict[str, Any] = schema["$defs"][ref]
        return {**root, "$defs": defs} if defs else root


def _wrap_in_object(schema: dict[str, Any]) -> dict[str, Any]:
    inner = {name: part for name, part in schema.items() if name != "$defs"}
    wrapper = {
        "type": "object",
        "properties": {_VALUE_KEY: inner},
        "required": [_VALUE_KEY],
        "additionalProperties": False,
    }
    return {**wrapper, "$defs": schema["$defs"]} if "$defs" in schema else wrapper
