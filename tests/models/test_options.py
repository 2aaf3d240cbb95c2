"""The options of the models guide are validated before a request is sent."""

from typing import Any

import pytest

from vaka.core.types.errors import BadRequest
from vaka.models.options import ModelOptions, OutputFormat, merge_body, read_options


def test_no_options_leave_everything_to_the_provider() -> None:
    assert read_options({}) == ModelOptions()


def test_every_option_is_read() -> None:
    options = read_options(
        {"max_tokens": 5, "temperature": 0, "stop": "END", "reasoning": "high", "output": {"type": "object"}}
    )
    assert (options.max_tokens, options.temperature, options.stop_texts, options.reasoning) == (5, 0, ["END"], "high")
    assert options.output_format == OutputFormat(schema={"type": "object"})


@pytest.mark.parametrize(
    "given", [OutputFormat(schema={"type": "object"}, name="city"), {"schema": {"type": "object"}, "name": "city"}]
)
def test_an_output_is_a_value_or_data(given: Any) -> None:
    assert read_options({"output": given}).output_format == OutputFormat(schema={"type": "object"}, name="city")


def test_a_schema_that_has_a_property_named_schema_is_still_a_schema() -> None:
    schema = {"type": "object", "properties": {"schema": {"type": "string"}}}
    assert read_options({"output": schema}).output_format == OutputFormat(schema=schema)


def test_several_stops_and_a_reasoning_budget_are_accepted() -> None:
    options = read_options({"stop": ["a", "b"], "reasoning": 2048})
    assert (options.stop_texts, options.reasoning) == (["a", "b"], 2048)
    assert (read_options({"stop": ""}).stop_texts, read_options({"stop": ["", " "]}).stop_texts) == ([], [" "])


@pytest.mark.parametrize(
    ("given", "effort"), [("none", "none"), ("max", "max"), (1, "low"), (4096, "medium"), (50_000, "high")]
)
def test_a_reasoning_budget_becomes_an_effort_where_a_wire_has_only_efforts(given: str | int, effort: str) -> None:
    assert read_options({"reasoning": given}).effort == effort
    assert read_options({}).effort is None


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"temprature": 1}, "did you mean 'temperature'?"),
        ({"zzz": 1}, "there are max_tokens"),
        ({"max_tokens": 0}, "model option 'max_tokens': expected a whole number above zero, got 0"),
        ({"max_tokens": "abc"}, "expected a whole number above zero, got 'abc'"),
        ({"temperature": "hot"}, "model option 'temperature': expected a number from 0 on, got 'hot'"),
        ({"reasoning": "a lot"}, "expected none, minimal, low, medium, high, max, or a number of tokens above zero"),
        ({"stop": 5}, "model option 'stop': expected a text, or a list of texts, got 5"),
        ({"stop": ["a", 5]}, "model option 'stop': expected a text, or a list of texts, got a list"),
        ({"top_p": 2}, "model option 'top_p': expected a number from 0 to 1, got 2"),
        ({"metadata": {"key": 5}}, "model option 'metadata': expected an object of texts, got a dict"),
        ({"headers": {"x-key": ["sk-of-mine"]}}, "model option 'headers': expected an object of texts, got a dict"),
    ],
)
def test_an_invalid_option_is_an_error_with_the_expected_value(given: dict[str, Any], hint: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_options(given)
    assert hint in str(caught.value)


def test_an_invalid_output_format_is_an_error() -> None:
    with pytest.raises(BadRequest, match="output"):
        _ = read_options({"output": {"schema": {"type": "object"}, "nmae": "x"}}).output_format


def test_extra_fields_override_a_request_and_extra_tools_are_added() -> None:
    body = {"model": "m", "tools": [1], "config": {"a": 1, "tools": [1]}, "stop": ["x"]}
    extra = {"model": "n", "tools": [2], "config": {"b": 2, "tools": [2]}, "stop": ["y"], "more": {}}
    assert merge_body(body, extra) == {
        "model": "n",
        "tools": [1, 2],
        "config": {"a": 1, "b": 2, "tools": [2]},
        "stop": ["y"],
        "more": {},
    }
    assert (body["tools"], extra["tools"]) == ([1], [2])
