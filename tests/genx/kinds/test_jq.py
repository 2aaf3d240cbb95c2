"""jq programs: results, errors, limits, and what a program cannot reach."""

import asyncio
import io
import json
import os
import resource
import sys
from importlib import import_module

import pytest

from vaka.core.types.errors import ConfigError, InvalidInput, ScriptError
from vaka.genx.kinds.jq import JqProgram, format_output
from vaka.genx.kinds.jq_worker import IDLE_SECONDS, MAX_PROGRAMS, answer_requests


async def first(expression: str, value: object = None) -> object:
    return await JqProgram(expression).first(value)


async def test_a_program_returns_its_first_result() -> None:
    order = {"id": 12345678901234567890, "lines": [{"n": 42.0, "name": "pen"}, {"n": 1.5, "name": "ink"}]}
    assert await first('.lines[0] | {n, label: (.name + " x" + (.n | tostring))}', order) == {
        "n": 42,
        "label": "pen x42",
    }
    assert await first('[.lines[].name] | join(", ")', order) == "pen, ink"
    assert await first(".id", order) == 12345678901234567890
    assert await first(".lines[].n # all of them", order) == 42
    assert await first("42.0 | tostring") == "42"
    assert await first('[1.5, null, "a", [1.0]] | map(tostring)') == ["1.5", "null", "a", "[1.0]"]


async def test_a_process_with_many_open_files_can_run_a_program() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    duplicates = [os.dup(1) for _ in range(1040)]
    try:
        many = (first("[range(200000)] | length") for _ in range(4))  # more than the workers that may be idle
        assert await asyncio.gather(*many) == [200000] * 4
    finally:
        for descriptor in duplicates:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_program_reaches_neither_the_environment_nor_modules_nor_more_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("A_SECRET", "s3cret")
    assert await first("[$ENV, env, (def f: $ENV; f)]") == [{}, {}, {}]
    for expression in ('"x" | modulemeta', "input", "[inputs, input]"):
        with pytest.raises(ScriptError):
            await first(expression)
    for expression in ('import "a" as a; 1', 'include "a"; 1', 'import "a" as $d {search: "/etc"}; $d'):
        with pytest.raises(InvalidInput, match="invalid jq expression"):
            JqProgram(expression)


async def test_a_program_that_does_not_compile_or_has_no_result_says_so() -> None:
    with pytest.raises(InvalidInput, match=r'invalid jq expression "\.\[0": syntax error'):
        JqProgram(".[0")
    with pytest.raises(InvalidInput, match="empty"):
        JqProgram(" ")
    with pytest.raises(InvalidInput, match="NUL"):
        JqProgram(".a\0 | .b")
    with pytest.raises(InvalidInput, match="invalid jq expression"):
        JqProgram('"\ud800"')
    with pytest.raises(ScriptError, match="nested too deeply"):
        await first("reduce range(9000) as $i (1; [.])")
    with pytest.raises(InvalidInput, match="at most"):
        JqProgram("." + " " * 20_000)
    with pytest.raises(ScriptError, match="jq expression returned no result"):
        await first("empty")
    with pytest.raises(ScriptError, match=r'".a" failed: Cannot index array'):
        await first(".a", [1])


async def test_a_program_that_does_not_end_is_stopped_and_the_next_one_runs() -> None:
    with pytest.raises(ScriptError, match=r"longer than 0\.2 s"):
        await JqProgram("def f: f; f", seconds=0.2).first(None)
    with pytest.raises(ScriptError, match="MiB of memory, or crashed"):
        await first('"x" * 100000 | [range(1e5) as $i | . + "\\($i)"]')
    with pytest.raises(ScriptError, match="more than 16777216 bytes"):
        await first('"x" * 20000000')
    assert await first(".") is None


async def test_programs_run_at_the_same_time_in_workers_of_their_own() -> None:
    assert await asyncio.gather(*(first(f"{number} + .", 1) for number in range(4))) == [1, 2, 3, 4]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_has_workers_of_its_own() -> None:
    assert asyncio.run(first(".", 1)) == 1
    child = os.fork()
    if child == 0:
        os._exit(asyncio.run(first(". + 6", 1)) == 7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert asyncio.run(first(". + 1", 1)) == 2


def test_a_worker_answers_requests_until_the_end_of_its_input() -> None:
    requests = [
        ("tojson", "1"),
        ("empty", "1"),
        (".a|tojson", "[]"),
        *((f"{n}|tojson", "1") for n in range(MAX_PROGRAMS)),
    ]
    source = io.BytesIO()
    sink = io.BytesIO()
    alarms = list[int]()
    for program, text in requests:
        source.write(json.dumps({"program": program, "seconds": 3, "size": len(text)}).encode() + b"\n" + text.encode())
    source.seek(0)
    answer_requests(import_module("jq"), source, sink, alarms.append)
    answers = [json.loads(line) for line in sink.getvalue().splitlines()]
    assert answers[:2] == [{"result": "1"}, {}]
    assert "Cannot index array" in answers[2]["error"]
    assert answers[3:] == [{"result": str(n)} for n in range(MAX_PROGRAMS)]
    assert alarms[-4:] == [IDLE_SECONDS, 3, IDLE_SECONDS, 0]


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jq", None)
    with pytest.raises(ConfigError, match=r"pip install 'vaka\[definitions\]'"):
        JqProgram(f".a{os.getpid()}")


def test_results_become_text_by_one_rule() -> None:
    assert [format_output(value) for value in ("a", b"b", {"c": 1.0}, [1, None], True)] == [
        "a",
        "b",
        '{"c":1}',
        "[1,null]",
        "true",
    ]
