"""Grep: equal results of both engines, complete, ordered, and never from outside the workspace."""

import json
import os
import shutil
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tools.builtin.harness import ToolHarness, value_of
from vaka.core.ports.files import FileBytes, FileInfo
from vaka.core.types.errors import FileError, FileRefused, InvalidInput
from vaka.core.types.ids import Digest
from vaka.files.workspace import WorkspaceFiles
from vaka.tools.builtin.search import ripgrep
from vaka.tools.builtin.search.grep import GrepEngine, GrepResult, run_grep

pytestmark = pytest.mark.every_loop(exhaustive=True)
RIPGREP = shutil.which("rg")
needs_ripgrep = pytest.mark.skipif(RIPGREP is None, reason="ripgrep is not installed: scripts/system.sh ripgrep")


@pytest.fixture
def bench(tmp_path: Path) -> ToolHarness:
    return ToolHarness(tmp_path)


@pytest.fixture(params=["python", pytest.param("ripgrep", marks=needs_ripgrep)])
def engine(request: pytest.FixtureRequest) -> GrepEngine:
    chosen: GrepEngine = request.param
    return chosen


async def grep(bench: ToolHarness, engine: GrepEngine, pattern: str, **more: Any) -> GrepResult:
    renamed = {f"-{name}" if len(name) == 1 else name: item for name, item in more.items()}
    return await run_grep(bench.files, {"pattern": pattern, **renamed}, engine=engine)


async def test_each_output_mode_has_its_format(bench: ToolHarness, engine: GrepEngine) -> None:
    bench.write("b/two.py", "x = 1\nneedle here\ny\nneedle again\n")
    bench.write("a.txt", "no\nneedle")
    bench.write("c.txt", "nothing")
    assert (await grep(bench, engine, "needle")).text == "a.txt\nb/two.py"
    assert (await grep(bench, engine, "needle", output_mode="count")).text == "a.txt: 1\nb/two.py: 2"
    content = await grep(bench, engine, "needle", output_mode="content")
    assert content.text == "a.txt:2: needle\nb/two.py:2: needle here\nb/two.py:4: needle again"
    assert (await grep(bench, engine, "needle", output_mode="content", n=False)).text == (
        "a.txt: needle\nb/two.py: needle here\nb/two.py: needle again"
    )
    assert (await grep(bench, engine, "NEEDLE")).text == "no matches"
    assert (await grep(bench, engine, "NEEDLE A", i=True)).text == "b/two.py"
    assert content.value == {
        "pattern": "needle",
        "compiled_pattern": "needle",
        "path": "",
        "output_mode": "content",
        "matches": [
            {"file": "a.txt", "line": 2, "match": "needle", "before": [], "after": []},
            {"file": "b/two.py", "line": 2, "match": "needle here", "before": [], "after": []},
            {"file": "b/two.py", "line": 4, "match": "needle again", "before": [], "after": []},
        ],
        "total_files": 2,
        "total_matches": 3,
        "truncated": False,
        "flags": {},
    }


async def test_few_and_many_matches_have_the_same_format(bench: ToolHarness, engine: GrepEngine) -> None:
    for number in range(12):
        bench.write(f"f{number:02}.txt", f"hit {'x' * 400}\nmiss\n" * 100)
    bench.write("f00.txt", "hit one hit\nmiss\nhit two")
    (bench.root / "f01.txt").write_bytes(b"hit\n\0binary\nhit\n")
    few = await grep(bench, engine, "hit", output_mode="content", glob="f0[01].txt")
    assert few.text == "f00.txt:1: hit one hit\nf00.txt:3: hit two"
    assert (few.value["total_files"], few.value["total_matches"]) == (1, 2)
    many = await grep(bench, engine, "hit", output_mode="content", head_limit=3)
    assert [(match["file"], match["line"]) for match in many.value["matches"]] == [
        ("f00.txt", 1),
        ("f00.txt", 3),
        ("f02.txt", 1),
    ]
    assert (many.value["total_files"], many.value["total_matches"]) == (11, 1002)


@pytest.mark.parametrize("multiline", [False, True])
async def test_matches_beyond_the_output_limit_have_the_same_format(
    bench: ToolHarness, engine: GrepEngine, multiline: bool
) -> None:
    lines = 3_000 if multiline else 300_000
    for number in range(4):
        bench.write(f"f{number}.txt", "hit\n" * lines)
    result = await grep(bench, engine, "hit", output_mode="content", head_limit=2, offset=1, multiline=multiline)
    assert result.text.startswith("f0.txt:2: hit\nf0.txt:3: hit\n[")
    assert (result.value["total_files"], result.value["total_matches"]) == (4, 4 * lines)


async def test_a_file_that_proves_binary_late_has_no_matches(bench: ToolHarness, engine: GrepEngine) -> None:
    (bench.root / "late.dat").write_bytes(b"hit\n" + b"text\n" * 100_000 + b"\0\nhit\n")
    bench.write("odd\n\nname.txt", "hit")
    bench.write("short.txt", "\nh\n\n")
    assert (await grep(bench, engine, "hit", output_mode="content")).value["matches"] == [
        {"file": "odd\n\nname.txt", "line": 1, "match": "hit", "before": [], "after": []}
    ]
    short = await grep(bench, engine, "^h?$", output_mode="content")
    assert short.text == "short.txt:1: \nshort.txt:2: h\nshort.txt:3: "


async def test_lines_around_a_match_are_shown_up_to_five(bench: ToolHarness, engine: GrepEngine) -> None:
    bench.write("a.txt", "1\n2\nhit\n4\nhit\n6")
    both = await grep(bench, engine, "hit", output_mode="content", C=1, A=9)
    assert both.text == "  -1: 2\na.txt:3: hit\n  +1: 4\n  -1: 4\na.txt:5: hit\n  +1: 6"
    sides = await grep(bench, engine, "6", output_mode="content", B=2, A=1)
    assert sides.text == "  -2: 4\n  -1: hit\na.txt:6: 6"
    bench.write("b.txt", "x\n" * 10 + "goal\n" + "y\n" * 10)
    many = (await grep(bench, engine, "goal", output_mode="content", context_lines=50)).value["matches"][0]
    assert (many["before"], many["after"]) == (["x"] * 5, ["y"] * 5)


async def test_results_come_in_pages_and_counts_are_complete(bench: ToolHarness, engine: GrepEngine) -> None:
    for number in range(30):
        bench.write(f"f{number:02}.txt", "hit\n" * 20)
    first = await grep(bench, engine, "hit", output_mode="content")
    assert len(first.value["matches"]) == 100
    assert (first.value["total_matches"], first.value["total_files"], first.value["truncated"]) == (600, 30, True)
    assert first.text.endswith("[100 results from number 1 on, there are more; use offset]")
    last = await grep(bench, engine, "hit", output_mode="content", offset=590, head_limit=50)
    assert [match["line"] for match in last.value["matches"]] == list(range(11, 21))
    assert not last.value["truncated"]
    count = await grep(bench, engine, "hit", output_mode="count", offset=28)
    assert count.text == "f28.txt: 20\nf29.txt: 20"
    files = await grep(bench, engine, "hit", head_limit=2, offset=1)
    assert files.text == "f01.txt\nf02.txt\n[2 results from number 2 on, there are more; use offset]"
    assert (await grep(bench, engine, "hit", offset=30)).text == "no matches from number 31 on; there are fewer"


@pytest.mark.parametrize(
    ("more", "files"),
    [
        ({"glob": "*.js"}, ["a.js", "src/b.js", "src/deep/c.js"]),
        ({"glob": "src/**/*.js"}, ["src/b.js", "src/deep/c.js"]),
        ({"glob": "/a.*"}, ["a.js", "a.py"]),
        ({"glob": "*.{mjs,py}"}, ["a.py", "src/d.mjs"]),
        ({"glob": "!*.js"}, ["a.py", "src/d.mjs", "src/e.kts", "src/ä b.txt"]),
        ({"glob": "deep/*", "path": "src"}, ["src/deep/c.js"]),
        ({"glob": "[ab].js"}, ["a.js", "src/b.js"]),
        ({"type": "js"}, ["a.js", "src/b.js", "src/d.mjs", "src/deep/c.js"]),
        ({"type": "kt"}, ["src/e.kts"]),
        ({"type": "txt"}, ["src/ä b.txt"]),
        ({"type": "js", "glob": "src/*"}, ["src/b.js", "src/d.mjs"]),
        ({"path": "src/deep"}, ["src/deep/c.js"]),
        ({"path": "src/b.js"}, ["src/b.js"]),
        ({"path": "src/b.js", "glob": "*.py"}, ["src/b.js"]),
    ],
)
async def test_files_are_narrowed_by_name_and_type(
    bench: ToolHarness, engine: GrepEngine, more: dict[str, Any], files: list[str]
) -> None:
    for path in ("a.js", "a.py", "src/b.js", "src/deep/c.js", "src/d.mjs", "src/e.kts", "src/ä b.txt"):
        bench.write(path, "hit")
    assert (await grep(bench, engine, "hit", **more)).value["files"] == files


async def test_ignored_files_binary_files_and_links_are_not_searched(bench: ToolHarness, engine: GrepEngine) -> None:
    for path in (
        "a.log",
        "keep.log",
        "build/x",
        "src/build",
        "src/gen/z",
        "src/sub/gen",
        "src/z",
        ".git/config",
        ".hidden/h",
        "src/sub/only.tmp",
        "src/sub/x/only.tmp",
        "other.tmp",
    ):
        bench.write(path, "hit")
    bench.write(".gitignore", "*.log\n!keep.log\nbuild/\n# words\n\nsrc/sub/x/only.tmp\n")
    bench.write("src/.gitignore", "/gen\nsub/only.tmp \n")
    bench.write(".ignore", "other.tmp\n")  # not a rule file of git
    bench.write("early.bin", b"hit\n\0")
    bench.write("late.bin", b"hit\n" + b"x" * 100 + b"\n" * 300_000 + b"\0hit\n")
    (bench.root / "link").symlink_to("src/z")
    (bench.root / "out").symlink_to("/etc")
    everything = ["keep.log", "other.tmp", ".hidden/h", "src/build", "src/sub/gen", "src/z"]
    assert (await grep(bench, engine, "hit")).value["files"] == sorted(everything)
    assert (await grep(bench, engine, "hit", path="src")).value["files"] == ["src/build", "src/sub/gen", "src/z"]
    assert (await grep(bench, engine, "hit", path="src/sub")).value["files"] == ["src/sub/gen"]
    assert (await grep(bench, engine, "hit", path="src/sub", output_mode="count")).text == "src/sub/gen: 1"
    named = await grep(bench, engine, "hit", path="a.log")
    assert named.value["files"] == ["a.log"], "a named file is searched even if ignored"
    assert (await grep(bench, engine, "hit", path="early.bin")).text == "no matches"
    assert (await grep(bench, engine, "root:")).text == "no matches"


async def test_a_repository_inside_another_has_rules_of_its_own(bench: ToolHarness, engine: GrepEngine) -> None:
    bench.write(".gitignore", "*.txt\n")
    bench.write("inner/a.txt", "hit")
    bench.write("plain/a.txt", "hit")
    bench.write("inner/.git/HEAD", "ref")
    assert (await grep(bench, engine, "hit")).value["files"] == ["inner/a.txt"]
    assert (await grep(bench, engine, "hit", path="inner")).value["files"] == ["inner/a.txt"]
    bench.write("inner/.git/info/exclude", "a.txt\n")
    bench.write("inner/deep/b.txt", "hit")
    assert (await grep(bench, engine, "hit", path="inner/deep")).value["files"] == ["inner/deep/b.txt"]


async def test_matches_span_lines_with_multiline(bench: ToolHarness, engine: GrepEngine) -> None:
    bench.write("a.go", "struct {\n  field int\n}\nstruct { field int }\nx\nstruct {\n\n  other int }\n")
    results = await grep(bench, engine, r"struct \{.*?field", multiline=True, output_mode="content")
    assert results.text == "a.go:1: struct {\na.go:2:   field int\na.go:4: struct { field int }"
    assert (await grep(bench, engine, r"\{\n", multiline=True, output_mode="count")).text == "a.go: 2"
    assert (await grep(bench, engine, r"struct", multiline=True, output_mode="count")).text == "a.go: 3"
    assert (await grep(bench, engine, r"^\}$\n^struct", multiline=True)).text == "a.go"
    bench.write("b.txt", "a a\nb\r\na")
    joined = await grep(bench, engine, "a", multiline=True, output_mode="content", path="b.txt")
    assert joined.text == "b.txt:1: a a\nb.txt:3: a"
    assert (await grep(bench, engine, "b$", multiline=True, output_mode="count", path="b.txt")).text == "b.txt: 1"
    with pytest.raises(InvalidInput, match="set multiline"):
        await grep(bench, engine, r"a\nb")


async def test_line_ends_byte_order_marks_encodings_and_long_lines_are_handled(
    bench: ToolHarness, engine: GrepEngine
) -> None:
    bench.write("crlf.txt", b"one hit\r\nhit\r\n")
    bench.write("bom.txt", b"\xef\xbb\xbfhit\n")
    bench.write("wide.txt", "ä\nhit ü\n".encode("utf-16"))
    bench.write("old.txt", b"caf\xe9 hit\n")
    bench.write("long.txt", "hit" + "ä" * 1000)
    results = await grep(bench, engine, "hit", output_mode="content")
    assert results.text == (
        f"bom.txt:1: hit\ncrlf.txt:1: one hit\ncrlf.txt:2: hit\nlong.txt:1: hit{'ä' * 497}… [503 more characters]\n"
        "old.txt:1: café hit\nwide.txt:2: hit ü"
    )
    assert (await grep(bench, engine, "^hit$", output_mode="count")).text == "bom.txt: 1\ncrlf.txt: 1"


@pytest.mark.parametrize("multiline", [False, True])
@pytest.mark.parametrize("pattern", ["$", r"\s*$", ".*$", "(hit)?$", r"\B$|hit", "hit[^\\n]*"])
async def test_an_optional_pattern_at_the_end_of_a_line_matches_in_both_engines(
    bench: ToolHarness, pattern: str, multiline: bool
) -> None:
    bench.write("a.txt", "a hit\nhit \n")
    results = [
        await grep(bench, engine, pattern, output_mode="content", multiline=multiline) for engine in ("auto", "python")
    ]
    assert results[0] == results[1]
    assert "a.txt:1: a hit" in results[0].text


async def test_a_carriage_return_inside_a_line_is_a_character(bench: ToolHarness) -> None:
    bench.write("a.txt", b"one\rtwo\nthree\r\n")
    assert (await grep(bench, "auto", r"e\r", output_mode="count")).text == "a.txt: 1"


async def test_an_unterminated_brace_in_a_glob_is_literal(bench: ToolHarness, engine: GrepEngine) -> None:
    bench.write("{a.txt", "hit")
    assert (await grep(bench, engine, "hit", glob="{a.txt")).text == "{a.txt"


async def test_names_of_every_kind_are_searched(bench: ToolHarness, engine: GrepEngine) -> None:
    for name in ("-e", "a b", "it's", "x\ny", ":1:", "{a,b}"):
        bench.write(name, "hit")
    (bench.root / os.fsdecode(b"caf\xe9.txt")).write_text("hit")
    results = (await grep(bench, engine, "hit")).value["files"]
    assert results == sorted(["-e", "a b", "it's", "x\ny", ":1:", "{a,b}", os.fsdecode(b"caf\xe9.txt")])
    assert (await grep(bench, engine, "hit", path="-e", output_mode="content")).text == "-e:1: hit"
    bench.write("d[1]/!x/.gitignore", "skipped\n")
    bench.write("d[1]/!x/sub/skipped", "hit")
    bench.write("d[1]/!x/sub/kept", "hit")
    assert (await grep(bench, engine, "hit", path="d[1]/!x/sub")).text == "d[1]/!x/sub/kept"


async def test_a_large_file_is_searched_in_chunks(bench: ToolHarness, engine: GrepEngine) -> None:
    line = b"a line of some length, again and again and again\n"
    bench.write("big.log", line * 400_000 + b"the needle\n" + line)
    results = await grep(bench, engine, "needle", output_mode="content", C=1)
    around = line.decode().rstrip()
    assert results.text == f"  -1: {around}\nbig.log:400001: the needle\n  +1: {around}"


async def test_other_roots_are_searched_by_their_full_paths(tmp_path: Path, engine: GrepEngine) -> None:
    other, inside = tmp_path / "other", tmp_path / "ws"
    for path in (other / "sub/a.txt", other / "b.tmp", inside / "a.txt"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("hit")
    (other / ".gitignore").write_text("*.tmp\n")
    bench = ToolHarness(inside, other)
    assert (await grep(bench, engine, "hit", path=str(other))).text == f"{other}/sub/a.txt"
    content = await grep(bench, engine, "hit", path=f"{other}/sub", output_mode="content")
    assert content.text == f"{other}/sub/a.txt:1: hit"
    for outside in ("/etc", "..", str(tmp_path)):
        with pytest.raises(FileRefused):
            await grep(bench, engine, "root", path=outside)


class GuardedWorkspace(WorkspaceFiles):
    """Files of which some are not readable, and one whose content is replaced."""

    async def stat(self, path: str) -> FileInfo:
        if path.endswith(".env"):
            raise FileRefused(f"{path!r} may not be read")
        return await super().stat(path)

    async def read(self, path: str, *, start: int = 0, size: int | None = None) -> FileBytes:
        if path.endswith(".env"):
            raise FileRefused(f"{path!r} may not be read")
        results = await super().read(path, start=start, size=size)
        return FileBytes(data=results.data.replace(b"outside", b"_inside"), info=results.info)


async def test_lines_are_read_through_the_files_of_the_session(bench: ToolHarness, engine: GrepEngine) -> None:
    bench.write(".env", "KEY=hit")
    bench.write("a.txt", "hit from outside")
    bench.files = GuardedWorkspace(bench.root)
    for mode in ("content", "count", "files_with_matches"):
        result = await grep(bench, engine, "hit", output_mode=mode)
        assert "a.txt" in result.text
        assert ".env" not in result.text
        assert "outside" not in result.text
        assert "KEY" not in json.dumps(result.value)


@needs_ripgrep
async def test_a_ripgrep_from_the_folder_that_is_searched_is_never_run(
    bench: ToolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("bin/rg", "#!/bin/sh\necho pwned > pwned\n").chmod(0o755)
    bench.write("a.txt", "hit")
    monkeypatch.setenv("PATH", f"{bench.root / 'bin'}:{os.environ['PATH']}")
    assert (await grep(bench, "auto", "hit")).text == "a.txt"
    assert not (bench.root / "pwned").exists()
    with pytest.raises(InvalidInput, match="not installed"):
        await grep(bench, "ripgrep", "hit")
    assert ripgrep.find_ripgrep("/nowhere") is not None


@needs_ripgrep
async def test_a_configuration_file_of_ripgrep_is_ignored(
    bench: ToolHarness, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rules = tmp_path_factory.mktemp("config") / "ripgreprc"
    rules.write_text("--invert-match\n--max-depth=1\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(rules))
    bench.write("a/b/c.txt", "hit")
    bench.write("d.txt", "no")
    assert (await grep(bench, "ripgrep", "hit")).text == "a/b/c.txt"


async def test_look_around_is_left_to_python(bench: ToolHarness) -> None:
    bench.write("a.txt", "foobar\nfoobaz\nabab\n")
    result = await grep(bench, "auto", r"foo(?!bar)|(ab)\1", output_mode="content")
    assert result.text == "a.txt:2: foobaz\na.txt:3: abab"


@pytest.mark.parametrize("mode", ["files_with_matches", "content", "count"])
async def test_the_tool_returns_the_same_as_the_function(bench: ToolHarness, mode: str) -> None:
    bench.write("a.txt", "one hit\n")
    result = await bench.call("Grep", pattern="hit", output_mode=mode, **{"-i": "yes", "-n": True})
    assert result.text in {"a.txt", "a.txt:1: one hit", "a.txt: 1"}
    assert value_of(result)["flags"] == {"-i": True}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pattern": "("}, "is not a regular expression"),
        ({"pattern": "a", "path": "nowhere"}, "FileMissing"),
        ({"pattern": "a", "path": "/etc"}, "FileRefused"),
        ({"pattern": "a", "output_mode": "all"}, "output_mode"),
        ({"pattern": "a", "colour": True}, "unknown 'colour'"),
        ({"pattern": "a", "-C": -1}, "-C"),
        ({"pattern": "a", "glob": "{a,b}" * 12}, "more than 1000 patterns"),
        ({}, "'pattern' is missing"),
    ],
)
async def test_invalid_arguments_are_a_clear_error(bench: ToolHarness, given: dict[str, Any], message: str) -> None:
    result = await bench.call("Grep", **given)
    assert result.failed
    assert message in result.text


@needs_ripgrep
async def test_an_error_of_ripgrep_is_passed_on(bench: ToolHarness) -> None:
    bench.write("a.txt", "x")
    with pytest.raises(InvalidInput, match="ripgrep cannot search for this"):
        await grep(bench, "ripgrep", r"(?:(?:\w{500}){500}){500}")


class DictFiles:
    """Files in memory, without ``walk``."""

    root = ""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files

    async def stat(self, path: str) -> FileInfo:
        kind = "file" if path in self._files else "folder"
        return FileInfo(path=path, kind=kind, size=len(self._files.get(path, b"")))  # type: ignore[arg-type]  # one of them

    async def entries(self, path: str) -> list[FileInfo]:
        start = f"{path}/" if path else ""
        names = {name[len(start) :].partition("/")[0] for name in self._files if name.startswith(start)}
        return [await self.stat(start + name) for name in sorted(names)]

    async def read(self, path: str, *, start: int = 0, size: int | None = None) -> FileBytes:
        data = self._files[path]
        return FileBytes(data=data[start:][:size], info=await self.stat(path))

    async def write(self, path: str, data: bytes, *, known: Digest | None = None, new: bool = False) -> FileInfo:
        raise FileRefused("these are only read")

    async def delete(self, path: str) -> None:
        raise FileRefused("these are only read")


async def test_files_without_a_local_folder_are_searched() -> None:
    files = DictFiles({"a.txt": b"hit", "b/c.txt": b"no\nhit", ".git/x": b"hit"})
    assert (await run_grep(files, {"pattern": "hit", "output_mode": "content"})).text == "a.txt:1: hit\nb/c.txt:2: hit"


WORDS = st.lists(
    st.sampled_from(["alpha", "beta", "a", "b", "", "  ", "x1", "ä", "foo_bar", "\r", "{", "(x)"]), max_size=6
)


@needs_ripgrep
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.lists(WORDS, max_size=6), min_size=1, max_size=4),
    pattern=st.sampled_from(
        [
            "a",
            "^a",
            "a$",
            r"\w+",
            r"a.*b",
            "[ab]x?",
            "alpha|beta",
            r"\bfoo",
            r"\s{2}",
            "x{1,2}",
            "^$",
            "(?i)ALPHA",
            r"\(x\)",
            "{",
        ]
    ),
    mode=st.sampled_from(["files_with_matches", "content", "count"]),
    multiline=st.booleans(),
    context=st.integers(0, 2),
)
async def test_the_engines_agree(
    tmp_path: Path, texts: list[list[list[str]]], pattern: str, mode: str, multiline: bool, context: int
) -> None:
    shutil.rmtree(tmp_path / "t", ignore_errors=True)
    (tmp_path / "t").mkdir()
    for number, lines in enumerate(texts):
        (tmp_path / "t" / f"f{number}").write_bytes("\n".join(" ".join(words) for words in lines).encode())
    files = WorkspaceFiles(tmp_path / "t")
    arguments: dict[str, Any] = {"pattern": pattern, "output_mode": mode, "-C": context, "multiline": multiline}
    if multiline and pattern in {"^$", "^a", "a$"}:  # empty matches at the end of the text are counted differently
        arguments["multiline"] = False
    assert await run_grep(files, arguments, engine="python") == await run_grep(files, arguments, engine="ripgrep")


@needs_ripgrep
async def test_counts_equal_those_of_ripgrep_itself(bench: ToolHarness) -> None:
    folder = Path(__file__).parents[4] / "src" / "vaka" / "tools"
    files = WorkspaceFiles(folder)
    for pattern in ("def ", r"async def \w+\(", "import", r"^\s+return", "[A-Z]{3,}"):
        process = subprocess.run(
            ["rg", "--no-config", "-c", "--sort=path", pattern], cwd=folder, capture_output=True, text=True, check=False
        )
        expected = dict(line.rsplit(":", 1) for line in process.stdout.split("\n")[:-1])
        for engine in ("python", "ripgrep"):
            result = await run_grep(files, {"pattern": pattern, "output_mode": "count"}, engine=engine)
            assert {path: str(count) for path, count in result.value["counts"].items()} == expected


async def test_a_folder_that_cannot_be_listed_is_noted(bench: ToolHarness) -> None:
    class Closed(WorkspaceFiles):
        def walk(self, start: str = "", **more: Any) -> AsyncGenerator[FileInfo]:
            async def some() -> AsyncGenerator[FileInfo]:
                async for info in super(Closed, self).walk(start, **more):
                    yield info
                raise FileError("not everything could be looked at: 'x'")

            return some()

    bench.write("a.txt", "hit")
    bench.files = Closed(bench.root)
    assert (await grep(bench, "python", "hit")).text == "a.txt\n[not everything could be looked at: 'x']"
    result = await bench.call("Glob", pattern="*.txt")
    assert result.text == "a.txt\n[not everything could be looked at: 'x']"
