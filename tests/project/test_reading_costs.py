"""What loading the content of a project reads: heads once, bodies never, and later only what changed."""

import os
import sys
from pathlib import Path

import pytest

from tests.opened_files import opened_files
from vaka.project.content import ProjectSource

BODY = "Body.\n" * 20_000


def write(path: Path, text: str, *, age: int = 1000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    seconds = path.stat().st_mtime - age
    os.utime(path, (seconds, seconds))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    for number in range(70):
        head = f"---\nname: s{number}\ndescription: Skill {number}.\n---\n"
        write(folder / f".claude/skills/s{number}/SKILL.md", head + BODY)
        write(folder / f".claude/skills/s{number}/more.md", BODY)
        write(folder / f".claude/commands/c{number}.md", f"---\ndescription: Command {number}.\n---\n{BODY}")
    for number in range(60):
        write(folder / f".claude/agents/a{number}.md", f"---\nname: a{number}\ndescription: Agent.\n---\n{BODY}")
    return folder


def bytes_read() -> int:
    lines = Path("/proc/self/io").read_text("utf-8").splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def test_each_head_is_read_once_and_no_body_and_later_only_what_changed(folder: Path) -> None:
    source = ProjectSource()
    before = bytes_read() if sys.platform == "linux" else 0
    with opened_files(".md") as opened:
        content = source.load(str(folder))
    read = (bytes_read() if sys.platform == "linux" else 0) - before
    found = content.components
    assert (len(found.skills), len(found.commands), len(found.agents)) == (70, 70, 60)
    assert len(opened) == len(set(opened)) == 200
    assert not [path for path in opened if path.endswith("more.md")]
    assert read < 200 * 8192 < 200 * len(BODY)

    with opened_files(".md") as opened:
        assert source.load(str(folder), content) == content
    assert opened == []

    changed = folder / ".claude/skills/s7/SKILL.md"
    write(changed, "---\nname: s7\ndescription: Changed.\n---\nBody", age=500)
    write(folder / ".claude/agents/new.md", "---\nname: new\ndescription: New.\n---\nBody")
    with opened_files(".md") as opened:
        later = source.load(str(folder), content)
    assert sorted(opened) == sorted([str(changed), str(folder / ".claude/agents/new.md")])
    skill, agent = later.components.find_skill("s7"), later.components.find_agent("new")
    assert skill is not None
    assert agent is not None
    assert (skill.description, agent.description) == ("Changed.", "New.")


def test_a_file_that_changed_a_moment_ago_is_read_again_though_its_times_are_the_same(folder: Path) -> None:
    path = folder / ".claude/agents/a1.md"
    for text in ("One.", "Two."):
        write(path, f"---\nname: a1\ndescription: {text}\n---\nBody", age=0)
        seconds = path.stat().st_mtime
        os.utime(path, (seconds, seconds))
        agent = ProjectSource().load(str(folder)).components.find_agent("a1")
        assert agent is not None
        assert agent.description == text
