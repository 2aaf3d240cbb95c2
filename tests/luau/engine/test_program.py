"""A program: its digest, loading and checking."""

from dataclasses import replace
from pathlib import Path

import pytest

from vaka.core.types.errors import NotFound, ScriptError
from vaka.luau.program import Program, ScriptLimits
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
