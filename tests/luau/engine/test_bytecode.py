"""The bytecode cache: modified files are compiled again."""

import stat
from pathlib import Path

import pytest

import pyluau
from vaka.core.types.errors import ConfigError, ScriptError
from vaka.luau.bytecode import BytecodeCache


def run_bytecode(bytecode: BytecodeCache, code: bytes) -> object:
    with pyluau.State(key=bytecode.key) as state:
        return state.load(code)()


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


def test_all_errors_of_many_sources_are_collected() -> None:
    errors = BytecodeCache().precompile([("a.luau", "return ("), ("b.luau", "return 1"), ("c.luau", "\nif")])
    assert [str(error).split(" ")[0] for error in errors] == ["a.luau:1:", "c.luau:2:"]


def test_the_cache_in_memory_is_bounded() -> None:
    bytecode = BytecodeCache(max_bytes=2_000)
    first = bytecode.compile("return 0", "a")
    for number in range(1, 100):
        bytecode.compile(f"return {number}", "a")
    assert bytecode.cached_bytes <= 2_000
    assert bytecode.compile("return 0", "a") is not first


def test_a_folder_stores_bytecode_for_the_next_process(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    code = BytecodeCache(folder).compile("return 42", "a.luau")
    again = BytecodeCache(folder)
    assert again.compile("return 42", "a.luau") == code
    assert run_bytecode(again, code) == 42
    assert stat.S_IMODE((folder / "key").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("change", ["flip", "cut", "empty", "foreign"])
def test_a_modified_file_is_compiled_again(tmp_path: Path, change: str) -> None:
    good = BytecodeCache(tmp_path).compile("return 42", "a.luau")
    (file,) = (path for path in tmp_path.iterdir() if path.name != "key")
    if change == "flip":
        file.write_bytes(good[:-3] + bytes([good[-3] ^ 1]) + good[-2:])
    elif change == "cut":
        file.write_bytes(good[:-5])
    elif change == "empty":
        file.write_bytes(b"")
    else:
        file.write_bytes(pyluau.compile("return 'evil'"))
    again = BytecodeCache(tmp_path)
    assert run_bytecode(again, again.compile("return 42", "a.luau")) == 42
    assert file.read_bytes() == good


def test_a_folder_that_cannot_be_written_is_not_an_error(tmp_path: Path) -> None:
    bytecode = BytecodeCache(tmp_path)
    BytecodeCache(tmp_path / "elsewhere").compile("return 1", "a")
    for path in (tmp_path / "elsewhere").iterdir():
        if path.name != "key":
            (tmp_path / path.name).mkdir()  # a folder instead of the file: it cannot be written
    assert run_bytecode(bytecode, bytecode.compile("return 1", "a")) == 1


def test_the_error_of_an_invalid_key_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(ConfigError, match="has 5 bytes; expected 32; delete the folder"):
        BytecodeCache(tmp_path)
