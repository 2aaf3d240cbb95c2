"""Memory files, rules and output styles: imports, order, patterns, and what is wrong with them."""

from pathlib import Path

import pytest

from vaka.project.file_scope import FileScope
from vaka.project.memory_files import MemoryReader, load_output_style, load_rules, memory_folders


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_imports_are_replaced_outside_of_code_and_each_file_is_read_once(tmp_path: Path) -> None:
    write(tmp_path / "docs/style.md", "Style. See @../deep.md")
    write(tmp_path / "deep.md", "Deep.")
    write(tmp_path / "my notes.md", "Notes.")
    text = (
        "<!-- hidden\n@deep.md -->\nSee @docs/style.md and @my\\ notes.md, @docs/none.md.\n`@deep.md` @deep.md\n"
        "```\n@docs/style.md\n```\nmail me@example.com @someone"
    )
    write(tmp_path / "CLAUDE.md", text)
    files = MemoryReader()
    (memory,) = files.load_folder(tmp_path)
    assert memory.text == (
        "See Style. See Deep. and Notes., @docs/none.md.\n`@deep.md` \n"
        "```\n@docs/style.md\n```\nmail me@example.com @someone"
    )
    assert files.problems == [f"{tmp_path}/CLAUDE.md:3: @docs/none.md: there is no such file"]


def test_cycles_missing_files_and_depth_cost_only_the_import(tmp_path: Path) -> None:
    write(tmp_path / "CLAUDE.md", "Start @a.md and @missing/file.md end.")
    write(tmp_path / "a.md", "A @b.md")
    write(tmp_path / "b.md", "B @a.md @c.md")
    write(tmp_path / "c.md", "C @d.md")
    write(tmp_path / "d.md", "D @e.md")
    write(tmp_path / "e.md", "E")
    files = MemoryReader()
    (memory,) = files.load_folder(tmp_path)
    assert memory.text == "Start A B  C D @e.md and @missing/file.md end."
    assert [problem.rpartition(": ")[2] for problem in files.problems] == [
        "imports are nested deeper than 4",
        "there is no such file",
    ]


def test_agents_md_is_read_where_there_is_no_claude_md(tmp_path: Path) -> None:
    write(tmp_path / "a/AGENTS.md", "Agents.")
    write(tmp_path / "b/AGENTS.md", "Not read.")
    write(tmp_path / "b/.claude/CLAUDE.md", "Claude.")
    write(tmp_path / "b/CLAUDE.local.md", "Local.")
    files = MemoryReader(excludes=["**/nothing.md"])
    assert [memory.text for memory in files.load_folder(tmp_path / "a")] == ["Agents."]
    assert [memory.text for memory in files.load_folder(tmp_path / "b")] == ["Claude.", "Local."]
    excluding = MemoryReader(excludes=[str(tmp_path / "**/CLAUDE.local.md")])
    assert [memory.text for memory in excluding.load_folder(tmp_path / "b")] == ["Claude."]


def test_an_import_that_is_not_allowed_and_a_file_that_is_no_text_are_reported(tmp_path: Path) -> None:
    write(tmp_path / "CLAUDE.md", f"See @{tmp_path}/out.md")
    write(tmp_path / "out.md", "secret")
    (tmp_path / "CLAUDE.local.md").write_bytes(b"a\0b")
    files = MemoryReader(scope=FileScope.of([tmp_path / "project"]))
    assert [memory.text for memory in files.load_folder(tmp_path)] == [f"See @{tmp_path}/out.md"]
    assert "outside of the project" in files.problems[0]
    assert "it is not a text" in files.problems[1]


def test_memory_folders_go_from_the_root_to_the_folder_and_skip_shared_ones(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    inner = shared / "inner"
    inner.mkdir(parents=True)
    shared.chmod(0o777)
    found = memory_folders(inner)
    assert found[-1] == inner
    assert tmp_path in found
    assert shared not in found
    assert found.index(tmp_path) < found.index(inner)


def test_rules_are_ordered_by_number_and_may_have_patterns(tmp_path: Path) -> None:
    write(tmp_path / "10-later.md", "Later.")
    write(tmp_path / "2-early.md", "Early.")
    write(tmp_path / "any/zeta.md", '---\npaths: "src/**/*.{ts,tsx}, *.sql"\n---\nTyped.')
    write(tmp_path / "alpha.md", "---\npaths: [unclosed\n---\nAlways.")
    (tmp_path / "any/loop").symlink_to(tmp_path)
    problems: list[str] = []
    rules = load_rules([tmp_path, tmp_path / "missing"], problems)
    assert [rule.text for rule in rules] == ["Early.", "Later.", "Always.", "Typed."]
    typed = rules[-1]
    for path in ("src/a.ts", "src/deep/b.tsx", "schema.sql", "db/schema.sql"):
        assert typed.applies_to(path), path
    for path in ("src/a.py", "lib/a.ts"):
        assert not typed.applies_to(path), path


@pytest.mark.parametrize(("name", "text"), [("Terse", "Be terse."), ("terse", "Be terse."), ("default", None)])
def test_an_output_style_is_found_by_its_name(tmp_path: Path, name: str, text: str | None) -> None:
    write(tmp_path / "terse.md", "---\nname: Terse\n---\nBe terse.")
    problems: list[str] = []
    style = load_output_style(name, [tmp_path], problems)
    assert (style.text if style else None) == text
    assert problems == []
    assert load_output_style("other", [tmp_path], problems) is None
    assert problems == ["there is no output style 'other'; there are: Terse"]


def test_hostile_texts_take_linear_time(tmp_path: Path) -> None:
    for text in (
        "<!--\n" * 100_000,
        "```\n````\n~~~\n" * 50_000,
        "`" * 200_000,
        "@" * 200_000,
        "{" * 1000,
        ("@" + "." * 999 + "x ") * 500,
    ):
        write(tmp_path / "CLAUDE.md", text)
        assert MemoryReader().load(tmp_path / "CLAUDE.md") is not None
