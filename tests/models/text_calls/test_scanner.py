"""Calls written as text: every form is read, in time linear in the length of the text."""

import json
import logging
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vaka.core.types.errors import InvalidInput
from vaka.core.types.tool import ToolSpec
from vaka.models.function_calls import FunctionCall, FunctionDefinition
from vaka.models.text_calls import scanner
from vaka.models.text_calls.model import parse_tool_calls
from vaka.models.text_calls.scanner import CallScanner

NAMES = ["weather", "time", "read-file"]


def read_calls(text: str) -> list[tuple[str, Any]]:
    """Return the names and arguments of the calls in a text."""
    return [(call.name, json.loads(call.arguments)) for call in parse_tool_calls(text, NAMES)]


def repairs_of(text: str) -> str:
    (call,) = parse_tool_calls(text, NAMES)
    return call.repaired


def fenced_block(*bodies: str) -> str:
    return "\n\n".join(f"```json\n{body}\n```" for body in bodies)


# ---------------------------------------------------------------------------------------------------- the three forms


def test_fenced_blocks_are_calls_with_ids_of_their_own() -> None:
    blocks = fenced_block('{"tool": "weather", "parameters": {"city": "Hilo"}}', '{"tool": "fly", "parameters": {}}')
    assert parse_tool_calls(f"Let me look.\n\n{blocks}", NAMES) == [
        FunctionCall(id="call_1", name="weather", arguments='{"city": "Hilo"}'),
        FunctionCall(id="call_2", name="fly", arguments="{}"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"tool": "time", "parameters": {"a": 1}}\n```',
        '```JSON {"parameters": {"a": 1}, "tool": "time"}```',
        '``` json\r\n\r\n{"tool": "time", "parameters": {"a": 1}, "why": ["x", {}]}\r\n```',
        '````json\n{"tool": "time", "parameters": {"a": 1}}\n````',
        'so:```json\n{ "tool" : "time" , "parameters" : { "a" : 1 } }',  # the answer ends with its call
        "Using the tool 'time' with parameters: {\"a\": 1}",
        'USING the\n tool "time"  with parameters :\n{"a": 1}.',
        'I am using the tool `time` with parameters:{"a": 1}',
        'time({"a": 1})',
        "so: time( a = 1 )",
        "調用time(a=1)",
        "`time(a=1)`",
        "```python\ntime(a=1)\n```",
    ],
)
def test_a_call_is_read_in_each_form(text: str) -> None:
    assert read_calls(text) == [("time", {"a": 1})]


def test_braces_parentheses_and_fences_in_texts_do_not_end_a_call() -> None:
    hostile = {"a": "}{", "b": 'x"\\', "c": "```", "d": {"e": [{"f": ")"}]}, "g": "Using the tool 'x' with"}
    written = json.dumps(hostile)
    assert read_calls(fenced_block(f'{{"tool": "time", "parameters": {written}}}')) == [("time", hostile)]
    assert read_calls(f"Using the tool 'time' with parameters: {written}") == [("time", hostile)]
    assert read_calls(f"time({written})") == [("time", hostile)]
    assert read_calls(f"time(x={written}, y={json.dumps(written)})") == [("time", {"x": hostile, "y": written})]


@pytest.mark.parametrize(
    ("parameters", "arguments"),
    [
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('" {\\"a\\": 1}"', {"a": 1}),
        ('"[1]"', {"value": [1]}),
        ('"Hilo"', {"value": "Hilo"}),
        ("[1, 2]", {"value": [1, 2]}),
        ("5", {"value": 5}),
        ("null", {}),
    ],
)
def test_parameters_that_are_not_an_object_become_one(parameters: str, arguments: Any) -> None:
    assert read_calls(fenced_block(f'{{"tool": "time", "parameters": {parameters}}}')) == [("time", arguments)]


def test_values_of_the_function_form_are_numbers_booleans_or_texts() -> None:
    text = (
        "weather(a=3, b=-7, c=1.5, d=2e3, e=true, f=False, g=New York, h=\"x, y\", i='it\\'s', j=[1, 'a'], k=,"
        " l=Coeur d'Alene, m=00501, n=99999999999999999999, o=+4, p=.5, q=1e999, r=null)"
    )
    assert read_calls(text) == [
        (
            "weather",
            {
                "a": 3,
                "b": -7,
                "c": 1.5,
                "d": 2000.0,
                "e": True,
                "f": False,
                "g": "New York",
                "h": "x, y",
                "i": "it's",
                "j": [1, "a"],
                "k": "",
                "l": "Coeur d'Alene",
                "m": "00501",
                "n": "99999999999999999999",
                "o": 4,
                "p": 0.5,
                "q": "1e999",
                "r": "null",
            },
        )
    ]


def test_several_functions_are_several_calls_and_may_have_no_arguments() -> None:
    assert read_calls("time() and weather(city=Hilo)\nread-file(path=a.txt)") == [
        ("time", {}),
        ("weather", {"city": "Hilo"}),
        ("read-file", {"path": "a.txt"}),
    ]


def test_only_calls_of_the_first_form_are_parsed() -> None:
    sentence, function = "Using the tool 'time' with parameters: {}", "weather(city=Hilo)"
    block = fenced_block('{"tool": "fly", "parameters": {}}')
    assert read_calls(f"{function}\n{sentence}\n{block}\n{function}") == [("fly", {})]
    assert read_calls(f"{function}\n{sentence}\n{function}") == [("time", {})]


NOT_CALLS = [
    "",
    "Hello.",
    "The weather (in Hilo) is fine.",
    "weather",
    "weather(",
    "weather(city",
    "weather(Hilo)",
    "weather(city=Hilo",
    'weather("Hilo")',
    "myweather(a=1)",
    "x.weather(a=1)",
    "weather.x(a=1)",
    "fly(a=1)",
    "weather(a=(1))",
    "weather(a=1 b=2)",
    "weather(=1)",
    "weather(a=1,,b=2)",
    "weather(,)",
    "weather({}",
    "weather({} x)",
    "weather(a=x' y)",
    "weather(a='x)",
    "weather([1])",
    "weather({a: 1})",
    "```json\n{}\n```",
    '```json\n{"tool": "time"}\n```',
    '```json\n{"tool": "", "parameters": {}}\n```',
    '```json\n{"tool": 1, "parameters": {}}\n```',
    '```json\n[{"tool": "time", "parameters": {}}]\n```',
    '```json\n{"tool": "time", "parameters": {}} and\n```',
    '```json\n{"tool": "time", "parameters": {}}``',
    '```\n{"tool": "time", "parameters": {}}\n```',
    '``json\n{"tool": "time", "parameters": {}}\n``',
    '```jsonc\n{"tool": "time", "parameters": {}}\n```',
    '```json\n{"tool": "time", "parameters": {}\n```',
    '```json\n{"tool": "time", "tool": "fly", "parameters": {}}\n```',
    '```json\n{"a": {"tool": "time", "parameters": {}}}\n```',
    '```json\n{"tool": "time" "parameters": {}}\n```',
    '```json\n{"tool": tool, "parameters": {}}\n```',
    '```json\n{"tool": "time", "parameters": {"a" 1}}\n```',
    '```json\n{"tool": "time", "parameters": [1}}\n```',
    '```json\n{"tool": "time", "parameters": {,}}\n```',
    '```json\n{"\\x": 1, "tool": "time"}\n```',
    '```json\n{"note": "say weather(city=Hilo)"}\n```',
    "Using the tool time with parameters: {}",
    "Using the tool '' with parameters: {}",
    "Using the tool 'time' with parameters: []",
    "Using the tool 'time' with parameters {}",
    "Using the tool 'time\n' with parameters: {}",
    f"Using the tool '{'x' * 129}' with parameters: {{}}",
    "Using the tools 'time' with parameters: {}",
    "Using the tool 'time' with parameters: {1: 2}",
    "Using the tool",
    "```json\n" + '{"tool": "time", "parameters": ' + "[" * 300 + "]" * 300 + "}\n```",
]
"""What is not quite a call."""


def test_text_that_resembles_a_call_is_text() -> None:
    assert [(text, calls) for text in NOT_CALLS if (calls := parse_tool_calls(text, NAMES))] == []


# ------------------------------------------------------------------------------------------------------------- repair


@pytest.mark.parametrize(
    ("parameters", "arguments", "repaired"),
    [
        ('{"a": 1}', '{"a": 1}', ""),
        ('{ "a" :  [ 1 ,2 ] }', '{ "a" :  [ 1 ,2 ] }', ""),
        ('{"a": [1, 2,], }', '{"a": [1, 2] }', "trailing comma"),
        ("{'a': 'x'}", '{"a": "x"}', "single quotes"),
        ("""{'a': 'say "x"'}""", '{"a": "say \\"x\\""}', "single quotes"),
        ("{'a': 'it\\'s', 'b': \"it's\"}", '{"a": "it\'s", "b": "it\'s"}', "single quotes"),
        ('{"a": True, "b": None}', '{"a": true, "b": null}', "Python words"),
        ('{"a": "x\ny\t"}', '{"a": "x\\ny\\t"}', "line breaks in text"),
        ("{'a': [1,],}", '{"a": [1]}', "single quotes; trailing comma"),
    ],
)
def test_unambiguous_faults_are_repaired_and_reported(parameters: str, arguments: str, repaired: str) -> None:
    wanted = [FunctionCall(id="call_1", name="time", arguments=arguments, repaired=repaired)]
    assert parse_tool_calls(fenced_block(f'{{"tool": "time", "parameters": {parameters}}}'), NAMES) == wanted
    assert parse_tool_calls(f"Using the tool 'time' with parameters: {parameters}", NAMES) == wanted
    assert parse_tool_calls(f"time({parameters})", NAMES) == wanted


def test_a_trailing_comma_and_faults_inside_a_function_are_repaired() -> None:
    assert repairs_of("time(a=1,)") == "trailing comma"
    assert repairs_of("time(a={'b': 1})") == "single quotes"
    assert repairs_of("time(a='b')") == ""


@pytest.mark.parametrize("parameters", ['{"a": 1, "a": 2}', '{"a": NaN}', '{"a": 1.2.3}', '{"a": "\\x"}', '"{oh"'])
def test_ambiguous_arguments_are_passed_on_unchanged(parameters: str) -> None:
    (call,) = parse_tool_calls(fenced_block(f'{{"tool": "time", "parameters": {parameters}}}'), NAMES)
    assert call.arguments == (parameters if parameters[0] == "{" else "{oh")
    with pytest.raises(InvalidInput):
        call.parse()


def test_a_duplicate_key_in_a_function_is_kept() -> None:
    (call,) = parse_tool_calls("time(a=1, a=2)", NAMES)
    assert call.arguments == '{"a": 1, "a": 2}'


# ------------------------------------------------------------------------------------------------------- the function


def test_tools_may_be_given_as_tools_or_names() -> None:
    spec = ToolSpec(name="time")
    for tool in (spec, FunctionDefinition.from_tool(spec), "time"):
        assert len(parse_tool_calls("time()", [tool])) == 1
    assert parse_tool_calls("time()", []) == []


def test_text_is_not_parsed_when_function_calling_is_active(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert parse_tool_calls("time()", NAMES, function_calling=True) == []
    assert caplog.messages == ["function calling is active: calls are not read from text"]


PIECES = st.sampled_from(
    [
        "```json",
        "```",
        "`",
        "{",
        "}",
        "[",
        "]",
        '"',
        "'",
        "\\",
        ":",
        ",",
        "tool",
        '"tool": "time"',
        "'parameters':",
        '{"tool": "time", "parameters": {}}',
        "weather(",
        "time()",
        ")",
        "a=1",
        "=",
        "Using the tool",
        "'time'",
        " with ",
        "parameters: ",
        "\n",
        "  ",
        "true",
        "None",
        "1.5",
        "é",
        "\ud800",
        "\u2028",
        "x",
        "using",
        "weath",
        "\\'",
        "-",
    ]
)
TEXTS = st.text() | st.lists(PIECES, max_size=40).map("".join)


@given(TEXTS)
def test_any_text_can_be_read(text: str) -> None:
    for call in parse_tool_calls(text, NAMES):
        assert call.name
        assert isinstance(call.arguments, str)


# ------------------------------------------------------------------------------------------------------ what it costs


def count_lines(work: Callable[[], object]) -> int:
    """Return how many lines of the reader are run."""
    count = 0
    file = scanner.__file__

    def local(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return local

    def enter(frame: FrameType, event: str, argument: object) -> Any:
        return local if frame.f_code.co_filename == file else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def scan_whole(text: str) -> Callable[[], object]:
    return lambda: parse_tool_calls(text, NAMES)


def scan_piecewise(text: str) -> Callable[[], object]:
    def work() -> None:
        scanner = CallScanner(NAMES)
        for char in text:
            scanner.feed(char)
        scanner.end()

    return work


HOSTILE = [
    "a",
    " ",
    "`",
    "{",
    '"',
    "'",
    "\\",
    "(",
    "```json{",
    '```json{"a":"',
    '```json{"a":\'',
    "```json {'a': '",
    "```json{\"a\":\"```json{'b':'",
    "weather(",
    "weather(a=",
    "weather(a='",
    "weather(k=x',k='",
    'weather({"a":"',
    "weather(a=x'y,",
    'weather(a="x",',
    "using ",
    "using the ",
    "Using the tool '",
    "Using the tool 'x' with ",
    "Using the tool 'x' with parameters: {",
    "Using the tool 'x' with parameters: {\"a\": '",
    '```json{"tool":"time","parameters":{}}',
    'weather({"a": 1} ',
    "[",
    '{"a":',
    "time()",
    "weather(a=[",
    "aweather(",
    "\n",
    "```json{\"a\":\"\\\"```json{'b':'\\'",
    "weather(a=\"weather(b='",
    "weather(a='weather(b=\"",
]


def test_the_work_is_linear_in_the_length_of_the_text() -> None:
    slow: list[tuple[str, str, int, int]] = []
    for scan in (scan_whole, scan_piecewise):
        for unit in HOSTILE:
            short, long = (count_lines(scan(unit * count)) for count in (40, 160))
            if long > 4 * short + 1000:
                slow.append((scan.__name__, unit, short, long))
    assert not slow


@given(st.lists(PIECES, min_size=1, max_size=8).map("".join), st.sampled_from([scan_whole, scan_piecewise]))
def test_no_text_makes_more_work_than_its_length(unit: str, of: Callable[[str], Callable[[], object]]) -> None:
    text = unit * (400 // len(unit) + 1)
    assert count_lines(of(text)) <= 100 * len(text)
