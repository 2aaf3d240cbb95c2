"""A program: its digest, loading and checking; the bytecode cache; limits as text and as values."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vaka.core.types.errors import InvalidInput, NotFound, ScriptError
from vaka.luau.program import BytecodeCache, Program, ScriptLimits
from vaka.luau.require import Library, Module
from vaka.luau.scheduler import NullJournal, drive
from vaka.luau.standalone import load_program
from vaka.luau.vm import VmRunner


def test_the_digest_covers_everything_that_determines_behaviour() -> None:
    program = Program("return 1", "a.luau")
    others = [
        replace(program, source="return 2"),
        replace(program, name="b.luau"),
        replace(program, library=Library({"x": Module("x", "return 1")})),
        replace(program, library=Library({"x": Module("x", "return 2")})),
        replace(program, preludes=("local env = ...",)),
        replace(program, main="local script = ... script()"),
        replace(program, opt=0),
    ]
    digests = {program.digest, *(other.digest for other in others)}
    assert len(digests) == len(others) + 1


def test_the_digest_does_not_cover_limits_and_trust() -> None:
    program = Program("return 1")
    assert program.digest == replace(program, limits=ScriptLimits(seconds=60), trusted=True).digest


async def test_a_script_is_loaded_with_its_libraries(tmp_path: Path) -> None:
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "greet.luau").write_text("return function(name) return `hello {name}` end")
    (tmp_path / "script.luau").write_text("return require('greet')(...)")
    limits = ScriptLimits(seconds=1)
    program = await load_program(tmp_path / "script.luau", libs=[tmp_path / "libs"], limits=limits)
    assert (program.name, program.limits, program.trusted) == ("script.luau", limits, True)
    vms = VmRunner()
    assert await drive(vms.open(replace(program, preludes=(), main="")), {}, NullJournal(), ["Ada"]) == ["hello Ada"]
    await vms.close()


async def test_every_script_can_require_the_builtin_library(tmp_path: Path) -> None:
    (tmp_path / "script.luau").write_text("return 1")
    program = await load_program(tmp_path / "script.luau")
    assert program.library.find("haivivi/resource").name == "haivivi/resource"


async def test_a_syntax_error_is_found_when_a_script_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "script.luau").write_text("return 1 +\n\n= 2")
    with pytest.raises(ScriptError, match=r"^script\.luau:3: "):
        await load_program(tmp_path / "script.luau")


async def test_the_error_of_an_unreadable_script_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"script '.*none\.luau' cannot be read: No such file"):
        await load_program(tmp_path / "none.luau")
    (tmp_path / "bad.luau").write_bytes(b"-- fine\n\xff")
    with pytest.raises(ScriptError, match=r"bad\.luau:2: the script is not UTF-8"):
        await load_program(tmp_path / "bad.luau")
    (tmp_path / "large.luau").write_bytes(b" " * (9 << 20))
    with pytest.raises(ScriptError, match=r"large\.luau: the script has \d+ bytes"):
        await load_program(tmp_path / "large.luau")


async def test_main_can_call_functions_that_the_script_defined() -> None:
    program = Program(
        "function invoke(n) return n * 2 end", "a.luau", main="local script, n = ... script() return invoke(n)"
    )
    vms = VmRunner()
    assert await drive(vms.open(program), {}, NullJournal(), [21]) == [42]
    await vms.close()


def test_a_source_is_compiled_once() -> None:
    bytecode = BytecodeCache()
    assert bytecode.compile("return 1", "a.luau") is bytecode.compile("return 1", "b.luau")


def test_each_optimisation_level_has_its_own_bytecode() -> None:
    bytecode = BytecodeCache()
    source = "local function f() return 1 end return f()"
    assert bytecode.compile(source, "a", 0) != bytecode.compile(source, "a", 2)


def test_a_syntax_error_names_its_file_and_line() -> None:
    with pytest.raises(ScriptError, match=r"^tools/a\.luau:2: "):
        BytecodeCache().compile("local a = 1\nlocal = 2", "tools/a.luau")


def test_the_cache_in_memory_is_bounded() -> None:
    bytecode = BytecodeCache(max_bytes=2_000)
    first = bytecode.compile("return 0", "a")
    for number in range(1, 100):
        bytecode.compile(f"return {number}", "a")
    assert bytecode.cached_bytes <= 2_000
    assert bytecode.compile("return 0", "a") is not first


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ScriptLimits()),
        ("memory=16M", ScriptLimits(memory=16 << 20)),
        ("memory=1.5g , seconds=250ms", ScriptLimits(memory=3 << 29, seconds=0.25)),
        ("seconds=2s,instructions=10M", ScriptLimits(seconds=2, instructions=10_000_000)),
        ("seconds=1m,coroutines=1k,depth=20", ScriptLimits(seconds=60, coroutines=1000, depth=20)),
        ("memory=2097152", ScriptLimits(memory=2 << 20)),
        ("seconds=none,memory=none,coroutines=none", ScriptLimits(seconds=None, memory=None, coroutines=None)),
    ],
)
def test_limits_are_parsed_from_text(text: str, expected: ScriptLimits) -> None:
    assert ScriptLimits.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("memry=1M", "limit 'memry=1M' is unknown; expected memory=64M, seconds=5"),
        ("memory", "limit 'memory' is unknown"),
        ("memory=", "is not a number with a unit such as G, K, M"),
        ("memory=lots", "is not a number with a unit"),
        ("memory=-1M", "is not a number with a unit"),
        ("memory=1T", "is not a number with a unit"),
        ("memory=1K", "memory must be 1M or more, not 1024"),
        ("seconds=0", "seconds must be a number above 0, not 0.0"),
        ("seconds=1h", "is not a number with a unit such as M, MS, S"),
        ("instructions=1.5", "is not a whole number"),
        ("instructions=0", "instructions must be a whole number above 0, not 0"),
        ("depth=none", "is not a number"),
        ("depth=501", "depth must be a whole number from 1 to 500, not 501"),
        ("memory=1M,memory=2M", "limit 'memory' is given twice"),
    ],
)
def test_the_error_of_an_invalid_limit_names_the_accepted_forms(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        ScriptLimits.parse(text)


@pytest.mark.parametrize("wrong", [{"memory": True}, {"seconds": float("nan")}, {"coroutines": 1.5}, {"depth": 0}])
def test_invalid_limits_cannot_be_constructed(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        ScriptLimits(**wrong)
