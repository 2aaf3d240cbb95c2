"""The bytecode cache."""

import pytest

from vaka.core.types.errors import ScriptError
from vaka.luau.program import BytecodeCache


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
