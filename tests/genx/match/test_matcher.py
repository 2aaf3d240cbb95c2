"""The matcher that asks a model, and the report of a test run."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec
import pytest

from vaka.core.ports.model import Chunk, Prompt, ReasoningChunk, RetryChunk, StopChunk, TextChunk
from vaka.core.types.errors import ModelError, ModelRefused, ModelUnavailable, StreamCut, Truncated, VakaError
from vaka.core.types.message import UserMessage, as_content
from vaka.genx.match.lines import MatchResult
from vaka.genx.match.matcher import collect, compile_rules
from vaka.genx.match.report import (
    CaseReport,
    ExpectedMatch,
    collect_tests,
    find_percentile,
    is_expected,
    is_same_value,
    make_report,
    run_tests,
)
from vaka.genx.match.rules import MatchRule, Scalar, parse_rule
from vaka.models.scripted import Scripted

RULES = [
    parse_rule({"name": "play", "vars": {"title": {}}, "patterns": ["play [title]"], "tests": ["play A", "play B"]}),
    parse_rule({"name": "nothing", "tests": ["hello", {"input": "stop", "rule": "stop"}]}),
]


class ChunkModel:
    """A model that yields given chunks, and raises given errors."""

    name = "chunks"

    def __init__(self, *chunks: Chunk | Exception) -> None:
        self._chunks = chunks
        self.prompts: list[Prompt] = []
        self.closed = False

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        self.prompts.append(prompt)
        try:
            for chunk in self._chunks:
                if isinstance(chunk, Exception):
                    raise chunk
                yield chunk
        finally:
            self.closed = True


async def _match(*chunks: Chunk | Exception) -> tuple[list[str], VakaError | None]:
    results, error = await collect(compile_rules(RULES).match(ChunkModel(*chunks), "play A"))
    return [result.raw_text for result in results], error


async def test_results_arrive_while_the_model_writes_and_the_stream_is_closed() -> None:
    model = ChunkModel(
        ReasoningChunk("play: title=no\n"),
        TextChunk("play: ti"),
        TextChunk("tle=A\nplay"),
        TextChunk(": title=B"),
        StopChunk(),
    )
    compiled = compile_rules(RULES)
    messages = [UserMessage(content=as_content("play A"))]
    stream = compiled.match(model, messages, options={"temperature": 0}, number=3)
    first = await anext(stream)
    assert first == MatchResult("play", {"title": "A"}, "play: title=A")
    assert [result.args async for result in stream] == [{"title": "B"}]
    (prompt,) = model.prompts
    assert (prompt.system, prompt.messages, prompt.number) == (compiled.prompt, tuple(messages), 3)
    assert prompt.options == {"temperature": 0}
    early = ChunkModel(TextChunk("play\nplay\n"), StopChunk())
    stream = compiled.match(early, "play A")
    await anext(stream)
    await stream.aclose()
    assert early.closed


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (ModelUnavailable("busy"), ModelUnavailable),
        (StopChunk("length"), Truncated),
        (StopChunk("refusal"), ModelRefused),
        (TextChunk("e=C"), StreamCut),
    ],
)
async def test_an_error_comes_after_the_lines_that_were_complete(
    end: Chunk | Exception, kind: type[ModelError]
) -> None:
    found, error = await _match(TextChunk("play: title=A\nplay: titl"), end)
    assert found == ["play: title=A"]
    assert isinstance(error, kind)


async def test_a_repeated_answer_gives_only_what_is_new() -> None:
    found, error = await _match(
        TextChunk("play: title=A\nplay: title=B\nplay: ti"),
        RetryChunk("model_unavailable", "again"),
        TextChunk("play: title=C\nplay: title=A\nplay: title=A"),
        StopChunk(),
    )
    assert (found, error) == (["play: title=A", "play: title=B", "play: title=C", "play: title=A"], None)


async def test_a_test_run_reports_cases_rules_and_percentiles() -> None:
    lines: list[dict[str, Any]] = [
        {"text": "play: title=A"},
        {"text": "I do not know\nnothing"},
        {"text": "Nothing fits."},
        {"error": {"status": 500}},
    ]
    compiled, model = compile_rules(RULES), Scripted(lines)

    async def match_text(text: str, number: int) -> tuple[Sequence[MatchResult], VakaError | None]:
        return await collect(compiled.match(model, text, number=number))

    cases = [case async for case in run_tests(collect_tests(RULES), match_text)]
    report = msgspec.to_builtins(make_report(RULES, {"scripted": cases}))
    assert (report["rule_count"], report["test_count"]) == (2, 4)
    (found,) = report["models"]
    assert list(found) == [
        "model",
        "total_cases",
        "passed",
        "failed",
        "errors",
        "pass_rate",
        "p50_ms",
        "p95_ms",
        "p99_ms",
        "rules",
        "cases",
    ]
    assert (found["passed"], found["failed"], found["errors"], found["pass_rate"]) == (2, 1, 1, 50.0)
    assert found["rules"] == [
        {"rule": "play", "total": 2, "passed": 1, "pass_rate": 50.0},
        {"rule": "nothing", "total": 1, "passed": 1, "pass_rate": 100.0},
        {"rule": "stop", "total": 1, "passed": 0, "pass_rate": 0.0},
    ]
    durations = [case.pop("duration_ms") for case in found["cases"]]
    assert found["p50_ms"] == sorted(durations)[1]
    assert found["cases"] == [
        {
            "input": "play A",
            "expected": {"rule": "play", "args": {}},
            "actual": {"rule": "play", "args": {"title": "A"}},
            "status": "pass",
        },
        {
            "input": "play B",
            "expected": {"rule": "play", "args": {}},
            "actual": {"rule": "nothing", "args": {}},
            "status": "fail",
        },
        {
            "input": "hello",
            "expected": {"rule": "nothing", "args": {}},
            "actual": {"rule": "", "args": {}, "raw_text": "Nothing fits."},
            "status": "pass",
        },
        {
            "input": "stop",
            "expected": {"rule": "stop", "args": {}},
            "actual": {"rule": "", "args": {}},
            "status": "error",
            "error": "the script says so (status 500)",
        },
    ]


def test_percentiles_are_values_of_the_run() -> None:
    values = [float(number) for number in range(1, 21)]
    assert [find_percentile(values, percent) for percent in (50, 95, 99)] == [10.0, 19.0, 19.0]
    assert find_percentile([], 50) == 0.0
    empty = make_report([MatchRule(name="r")], {"none": list[CaseReport]()})
    assert (empty.models[0].pass_rate, empty.models[0].p99_ms) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        (1.0, 1, True),
        ("1.0", 1, True),
        (1, "1.5", False),
        ("Yesterday", " yesterday ", True),
        ("Straße", "STRASSE", True),
        ("a", "b", False),
        ("a", None, False),
        (True, "true", True),
        (True, 1, False),
        ("1" * 400, "1" * 400, True),
    ],
)
def test_values_are_compared_as_numbers_or_without_case(expected: Scalar, actual: Scalar | None, same: bool) -> None:
    assert is_same_value(expected, actual) is same


@pytest.mark.parametrize(
    ("rule", "results", "passes"),
    [
        ("nothing", [], True),
        ("nothing", [MatchResult("nothing")], True),
        ("nothing", [MatchResult("", {}, "no idea")], True),
        ("nothing", [MatchResult("play", {}, "play")], False),
        ("nothing", [MatchResult("play", {}, "play"), MatchResult("", {}, "or nothing")], True),
        ("", [], True),
        ("", [MatchResult("play")], False),
        ("play", [], False),
        ("play", [MatchResult("", {}, "well"), MatchResult("play"), MatchResult("stop")], True),
        ("play", [MatchResult("stop"), MatchResult("play")], False),
    ],
)
def test_the_first_result_with_a_rule_counts(rule: str, results: list[MatchResult], passes: bool) -> None:
    assert is_expected(ExpectedMatch("text", rule, {}), results) is passes


def test_every_expected_argument_must_be_there() -> None:
    result = MatchResult("play", {"title": "A", "count": 2})
    assert is_expected(ExpectedMatch("text", "play", {"title": "a", "count": 2.0}), [result])
    assert not is_expected(ExpectedMatch("text", "play", {"title": "a", "artist": "b"}), [result])
