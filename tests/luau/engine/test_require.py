"""The modules that a script can require, and their names."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.luau.engine.script_fixtures import ASK_PRELUDE, MemoryJournal
from vaka.core.types.errors import ConfigError, ScriptError
from vaka.luau.program import Program
from vaka.luau.protocol import HostFunction, ReplayJournal
from vaka.luau.require import read_library
from vaka.luau.scheduler import NullJournal, drive
from vaka.luau.vm import VmRunner


def write_files(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


async def count_requires(step: int = 1) -> int:
    return step


async def run_with_libraries(libs: Path, source: str, journal: ReplayJournal | None = None) -> Any:
    vms = VmRunner()
    try:
        program = Program(source, "main.luau", await read_library([libs]), preludes=(ASK_PRELUDE,))
        return list(await drive(vms.open(program), {"count": HostFunction(count_requires)}, journal or NullJournal()))
    finally:
        await vms.close()


async def test_modules_are_found_as_files_and_as_folders(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.luau": "return 'a'", "b/init.luau": "return 'b'", "b/c.luau": "return 'c'"})
    source = "return require('a'), require('b'), require('b/c'), require('b/init') == require('b')"
    assert await run_with_libraries(tmp_path, source) == ["a", "b", "c", True]


async def test_a_file_comes_before_a_folder_and_the_first_library_before_the_next(tmp_path: Path) -> None:
    one = write_files(tmp_path / "one", {"a.luau": "return 'file'", "a/init.luau": "return 'folder'"})
    two = write_files(tmp_path / "two", {"a.luau": "return 'second'", "b.luau": "return 'b'"})
    library = await read_library([one, two])
    assert {name: module.source for name, module in library.modules.items()} == {
        "a": "return 'file'",
        "b": "return 'b'",
    }


async def test_a_module_runs_once_for_each_script(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.luau": "local made = {n = ask('count')} return made"})
    book = MemoryJournal()
    source = "local a, b = require('a'), require('a'); a.n += 1; return a == b, b.n"
    assert await run_with_libraries(tmp_path, source, book) == [True, 2]
    assert len(book.answers) == 1
    assert await run_with_libraries(tmp_path, source) == [True, 2]


async def test_a_module_that_returns_nothing_runs_once(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.luau": "ask('count')"})
    book = MemoryJournal()
    assert await run_with_libraries(tmp_path, "return require('a'), require('a')", book) == [None, None]
    assert len(book.answers) == 1


async def test_concurrent_requires_of_one_module_share_its_result(tmp_path: Path) -> None:
    write_files(tmp_path, {"slow.luau": "ask('count') return {}"})
    source = """
        local got = {}
        for i = 1, 3 do spawn(function() got[i] = require("slow") end) end
        while #got < 3 do ask("count") end
        return got[1] == got[2], got[2] == got[3]
    """
    assert await run_with_libraries(tmp_path, source) == [True, True]


async def test_a_module_has_globals_of_its_own(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.luau": "leak = 1; _G.other = 2; return function() return leak end"})
    source = "local f = require('a'); return f(), leak, other, _G.leak"
    assert await run_with_libraries(tmp_path, source) == [1, None, None, None]


async def test_a_cycle_of_modules_is_an_error_with_the_chain(tmp_path: Path) -> None:
    write_files(
        tmp_path, {"a.luau": "return require('b')", "b.luau": "return require('c')", "c.luau": "return require('a')"}
    )
    with pytest.raises(ScriptError, match=r"require: modules need each other: a -> b -> c -> a"):
        await run_with_libraries(tmp_path, "require('a')")
    with pytest.raises(ScriptError, match=r"require: modules need each other: c -> a -> b -> c"):
        await run_with_libraries(tmp_path, "pcall(require, 'a') require('c')")


async def test_a_module_that_requires_itself_is_an_error(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.luau": "return require('a')"})
    with pytest.raises(ScriptError, match=r"require: modules need each other: a -> a"):
        await run_with_libraries(tmp_path, "require('a')")


async def test_a_cycle_of_modules_in_two_coroutines_is_an_error(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.luau": "ask('count') return require('b')", "b.luau": "ask('count') return require('a')"})
    source = """
        local said = {}
        spawn(function() table.insert(said, select(2, pcall(require, "a"))) end)
        spawn(function() table.insert(said, select(2, pcall(require, "b"))) end)
        while #said < 2 do ask("count") end
        return said[1]
    """
    (message,) = await run_with_libraries(tmp_path, source)
    assert "modules need each other" in message


async def test_an_error_in_a_module_names_the_module_and_the_line(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.luau": "\nerror('broken')", "bad.luau": "local = 1"})
    with pytest.raises(ScriptError, match=r"main\.luau:1: require: module 'a' failed: a\.luau:2: broken"):
        await run_with_libraries(tmp_path, "require('a')")
    with pytest.raises(ScriptError, match=r"^bad\.luau:1: Expected identifier"):
        await run_with_libraries(tmp_path, "require('bad')")
    assert await run_with_libraries(tmp_path, "return pcall(require, 'a')") == [
        False,
        "require: module 'a' failed: a.luau:2: broken",
    ]


async def test_an_error_table_of_a_module_is_unchanged(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.luau": "error({code = 7})"})
    assert await run_with_libraries(tmp_path, "local _, e = pcall(require, 'a') return e.code") == [7]


async def test_the_error_of_a_missing_module_names_the_files_searched(tmp_path: Path) -> None:
    write_files(tmp_path, {"haivivi/http.luau": "return 1"})
    message = rf"module 'haivivi/htp' not found: looked for haivivi/htp.luau and haivivi/htp/init.luau in {tmp_path}"
    with pytest.raises(ScriptError, match=message + "; did you mean 'haivivi/http'"):
        await run_with_libraries(tmp_path, "require('haivivi/htp')")


@pytest.mark.parametrize(
    "name",
    ["", "..", "../a", "./a", "a/../a", "a..b", "/a", "\\\\a", "a\\\\b", "C:/a", "a\\0", "a//b", "a/", "a/./b", "a\\n"],
)
async def test_invalid_module_names_are_refused(tmp_path: Path, name: str) -> None:
    write_files(tmp_path, {"a.luau": "return 1"})
    ok, message = await run_with_libraries(tmp_path, f"return pcall(require, '{name}')")
    assert not ok
    assert message.startswith("require: ")


@pytest.mark.parametrize("name", ["nil", "1", "{}", "print", "true"])
async def test_a_module_is_named_by_a_string(tmp_path: Path, name: str) -> None:
    with pytest.raises(ScriptError, match=r"main\.luau:1: require: a module is named by a string, not by a"):
        await run_with_libraries(tmp_path, f"require({name})")


async def test_a_module_can_require_relative_paths(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "lib/init.luau": "return {require('./part'), require('./deep/one')}",
            "lib/part.luau": "return require('./deep/one') .. '!'",
            "lib/deep/one.luau": "return require('../two')",
            "lib/two.luau": "return 'two'",
            "out.luau": "return require('../secret')",
            "empty.luau": "return require('./')",
        },
    )
    assert await run_with_libraries(tmp_path, "return require('lib')") == [["two!", "two"]]
    with pytest.raises(ScriptError, match=r"require: '../secret' leaves the library of out\.luau"):
        await run_with_libraries(tmp_path, "require('out')")
    with pytest.raises(ScriptError, match=r"has an empty part"):
        await run_with_libraries(tmp_path, "require('empty')")


async def test_links_that_leave_the_library_are_not_followed(tmp_path: Path) -> None:
    outside = write_files(tmp_path / "outside", {"secret.luau": "return 'secret'"})
    libs = write_files(tmp_path / "libs", {"a.luau": "return 'a'"})
    (libs / "stolen.luau").symlink_to(outside / "secret.luau")
    (libs / "folder").symlink_to(outside)
    (libs / "alias.luau").symlink_to(libs / "a.luau")
    (libs / "broken.luau").symlink_to(libs / "nothing.luau")
    os.mkfifo(libs / "pipe.luau")
    assert await run_with_libraries(libs, "return require('alias')") == ["a"]
    for name, why in {"stolen": "leaves the library", "broken": "not a regular", "pipe": "not a regular"}.items():
        with pytest.raises(ScriptError, match=f"require: module '{name}': it is .*{why}"):
            await run_with_libraries(libs, f"require('{name}')")
    with pytest.raises(ScriptError, match="module 'folder/secret' not found"):
        await run_with_libraries(libs, "require('folder/secret')")


async def test_declarations_and_hidden_files_are_not_modules(tmp_path: Path) -> None:
    write_files(
        tmp_path, {"vaka.d.luau": "declare", ".hidden.luau": "return 1", ".git/x.luau": "return 1", "a.txt": ""}
    )
    assert (await read_library([tmp_path, tmp_path / "not there"])).modules == {}


async def test_the_error_of_a_library_that_is_not_utf_8_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.luau").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"library file '.*a\.luau' cannot be read"):
        await read_library([tmp_path])
