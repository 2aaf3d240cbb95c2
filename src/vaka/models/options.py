"""The options of a model call, which are the same for every provider."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, cast

import msgspec

from vaka.core.types.errors import BadRequest
from vaka.core.types.keywords import find_near_names

Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "max"]
_Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class OutputFormat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The JSON Schema of the answer."""

    schema: dict[str, Any]
    name: str = "answer"
    description: str = ""
    strict: bool = True


class ModelOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``Prompt.options``, validated. ``None`` means the provider's default."""

    max_tokens: _Positive | None = None
    """Tokens of the answer at most, reasoning included."""
    temperature: Annotated[float, msgspec.Meta(ge=0)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    top_k: _Positive | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    stop: tuple[str, ...] | str = ()
    """Texts at which the answer ends; they are not part of it."""
    seed: int | None = None
    parallel_calls: bool | None = None
    """Whether one answer may have several tool calls."""
    reasoning: Effort | _Positive | None = None
    """How much to think: an effort, or a budget in tokens."""
    output: dict[str, Any] | None = None
    """The output schema: ``{"schema": {…}, "name"?, "strict"?}``, or a JSON Schema itself."""
    cache: bool | None = None
    """Whether to mark the prompt for the provider's cache; by default as the model is configured."""
    metadata: dict[str, str] = {}
    user: str = ""
    """The end user, for the provider's abuse detection."""
    service_tier: str = ""
    headers: dict[str, str] = {}
    extra: dict[str, Any] = {}
    """Fields of one provider, added to the request unchanged."""

    @property
    def stop_texts(self) -> list[str]:
        """The stop texts as a list, without empty ones, which providers refuse."""
        return [text for text in ((self.stop,) if isinstance(self.stop, str) else self.stop) if text]

    @property
    def effort(self) -> Effort | None:
        """The reasoning effort; for a budget in tokens the effort nearest to it."""
        if not isinstance(self.reasoning, int):
            return self.reasoning
        return "low" if self.reasoning < 4096 else "medium" if self.reasoning < 16384 else "high"

    @property
    def output_format(self) -> OutputFormat | None:
        """The output schema with its name. Raises ``BadRequest`` for unknown fields."""
        if self.output is None or not isinstance(self.output.get("schema"), dict):
            return None if self.output is None else OutputFormat(schema=self.output)
        try:
            return msgspec.convert(self.output, OutputFormat)
        except msgspec.ValidationError as error:
            raise BadRequest(f"model output: {error}") from error


_EXPECTED_VALUES = {
    "max_tokens": "a whole number above zero",
    "top_k": "a whole number above zero",
    "temperature": "a number from 0 on",
    "top_p": "a number from 0 to 1",
    "seed": "a whole number",
    "frequency_penalty": "a number",
    "presence_penalty": "a number",
    "stop": "a text, or a list of texts",
    "reasoning": "none, minimal, low, medium, high, max, or a number of tokens above zero",
    "parallel_calls": "true or false",
    "cache": "true or false",
    "output": "a JSON Schema",
    "extra": "an object",
    "metadata": "an object of texts",
    "headers": "an object of texts",
    "user": "a text",
    "service_tier": "a text",
}
_DEFAULT = ModelOptions()


def read_options(options: Mapping[str, Any]) -> ModelOptions:
    """Return ``options``, validated. Raises ``BadRequest`` that names the invalid option and what was expected."""
    if not options:
        return _DEFAULT
    for name in options:
        if name not in ModelOptions.__struct_fields__:
            near = find_near_names(name, ModelOptions.__struct_fields__, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(ModelOptions.__struct_fields__)}"
            raise BadRequest(f"there is no model option {name!r}; {hint} What only one provider knows goes in 'extra'.")
    output = options.get("output")
    if isinstance(output, OutputFormat):
        options = {**options, "output": msgspec.structs.asdict(output)}
    try:
        return msgspec.convert(options, ModelOptions)
    except msgspec.ValidationError as error:
        raise BadRequest(_describe_invalid_option(options, str(error))) from error


def _describe_invalid_option(options: Mapping[str, Any], message: str) -> str:
    """Return which option is invalid, without the values of objects, which may be secrets."""
    name = re.split(r"[.\[`]", message.partition("`$.")[2])[0]
    if name not in _EXPECTED_VALUES:
        return f"model options: {message}"
    value = options[name]
    got = f"{value!r:.60}" if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
    return f"model option {name!r}: expected {_EXPECTED_VALUES[name]}, got {got}"


def drop_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request that have a value."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


def merge_body(
    body: Mapping[str, Any], extra: Mapping[str, Any], appended: Sequence[str] = ("tools",)
) -> dict[str, Any]:
    """Return a request with ``extra`` merged into it, objects member by member.

    Lists in ``appended`` are appended; everything else is replaced.
    """
    merged = dict(body)
    for name, value in extra.items():
        before: Any = merged.get(name)
        if isinstance(before, dict) and isinstance(value, Mapping):
            merged[name] = merge_body(cast("dict[str, Any]", before), cast("Mapping[str, Any]", value), ())
        elif name in appended and isinstance(before, list) and isinstance(value, list):
            merged[name] = before + value
        else:
            merged[name] = value
    return merged
