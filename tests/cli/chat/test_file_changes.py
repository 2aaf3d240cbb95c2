"""What ``/undo``, ``/rewind`` and ``/diff`` of a chat say about files, and what they do."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat.chat_in_process import chat_in_process
from vaka import Agent, Runtime
from vaka.config.options import Commands, Permissions
from vaka.models.scripted import Scripted


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with uncommitted work, in which the chat runs."""
    monkeypatch.chdir(tmp_path)
    for name, text in {"a.txt": "one\n", "b.txt": "two\n", ".gitignore": "*.log\n"}.items():
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", "add", "-A"], check=True)
    (tmp_path / "a.txt").write_text("one, by hand\n")
    return tmp_path


def commands_runtime(*commands: str) -> Runtime:
    """Return a runtime whose model runs commands and says that it is done, one command in each turn."""
    lines: list[dict[str, Any]] = []
    for number, command in enumerate(commands):
        lines += [{"tool_calls": [{"name": "Bash", "arguments": {"command": command}}]}, {"text": f"Done {number}."}]
    agent: Agent[Any] = Agent("coder", model=Scripted(lines), tools=["Bash", "BashOutput"])
    return Runtime(agent=agent, commands=Commands(sandbox="off"), permissions=Permissions(mode="bypassPermissions"))


CHANGE = "echo three > c.txt; rm b.txt; sed -i s/one/ONE/ a.txt; printf '\\0\\1' > d.bin; echo x > e.log; touch f"


async def test_diff_shows_what_commands_changed_and_undo_takes_it_back(project: Path) -> None:
    async with commands_runtime(CHANGE) as runtime, chat_in_process(runtime) as chat:
        await chat.say("Change it.")
        await chat.expect("Done 0.")
        await chat.say("/diff")
        await chat.expect("commands ran: what they changed outside")
        await chat.expect("● changed file a.txt\n  │    1 - one, by hand\n  │    1 + ONE, by hand")
        await chat.expect("● deleted file b.txt\n  │    1 - two")
        await chat.expect("● new file c.txt\n  │    1 + three")
        await chat.expect("● new file d.bin\n  │ not a text that is shown: 2 bytes")
        await chat.expect("● new file f\n  │ an empty file")
        await chat.expect("changed too, the earlier content is not known: e.log")
        await chat.say("/undo")
        await chat.expect("restored: a.txt, b.txt\nremoved: c.txt, d.bin, f\n")
        await chat.expect(
            "not restored (ignored by git, too large, unreadable, an empty folder, a\nrepository, or its index): e.log"
        )
        await chat.expect("the last turn is taken back")
        await chat.say("/diff")
        await chat.expect("no file differs from what it was before this session")
    assert (project / "a.txt").read_text() == "one, by hand\n"
    assert sorted(path.name for path in project.iterdir()) == [".git", ".gitignore", "a.txt", "b.txt", "e.log"]


async def test_diff_shows_modes_and_names_with_line_breaks(project: Path) -> None:
    (project / "run.sh").write_text("exit\n")
    (project / "run.sh").chmod(0o755)
    command = "chmod +x a.txt b.txt; chmod -x run.sh; echo 2 > b.txt; echo 3 > $'new\\nline.txt'"
    async with commands_runtime(command) as runtime, chat_in_process(runtime) as chat:
        await chat.say("Change it.")
        await chat.expect("Done 0.")
        await chat.say("/diff")
        await chat.expect("● changed file a.txt (can be run now)\n")
        await chat.expect("● changed file b.txt (can be run now)\n  │    1 - two\n  │    1 + 2")
        await chat.expect("● new file new\\nline.txt\n  │    1 + 3")
        await chat.expect("● changed file run.sh (cannot be run any more)\n")
        await chat.say("/undo")
        await chat.expect("restored: a.txt, b.txt, run.sh\nremoved: new\\nline.txt\n")
        await chat.say("/diff")
        await chat.expect("no file differs from what it was before this session")
    runnable = sorted(path.name for path in project.iterdir() if path.is_file() and path.stat().st_mode & 0o111)
    assert runnable == ["run.sh"]


async def test_undo_does_not_overwrite_the_change_of_a_person_unless_forced(project: Path) -> None:
    async with commands_runtime("echo command > a.txt; touch made") as runtime, chat_in_process(runtime) as chat:
        await chat.say("Change it.")
        await chat.expect("Done 0.")
        (project / "a.txt").write_text("a person\n")
        await chat.say("/undo it")
        await chat.expect("/undo takes nothing, or: force")
        await chat.say("/undo")
        await chat.expect("not overwritten: 'a.txt';\nnothing was taken back; /undo force overwrites these files")
        assert (project / "made").exists()
        await chat.say("/undo force")
        await chat.expect("restored: a.txt\nremoved: made\n")
    assert (project / "a.txt").read_text() == "one, by hand\n"


async def test_rewind_says_whether_files_stay(project: Path) -> None:
    async with commands_runtime("touch one", "touch two") as runtime, chat_in_process(runtime) as chat:
        await chat.say("First.")
        await chat.expect("Done 0.")
        await chat.say("Second.")
        await chat.expect("Done 1.")
        await chat.say("/rewind 1")
        await chat.expect("files stay as they are")
        assert (project / "two").exists()
        await chat.say("/rewind 1 files")
        await chat.expect("removed: one, two")
        await chat.say("/rewind 1 filse")
        await chat.expect("/rewind takes nothing, files, or files force")
    assert not (project / "one").exists()


async def test_what_cannot_be_attributed_or_was_not_recorded_is_named(project: Path) -> None:
    (project / "wait.sh").write_text("exec sleep 1000\n")
    agent: Agent[Any] = Agent(
        "coder",
        model=Scripted(
            [
                {"tool_calls": [{"name": "Bash", "arguments": {"command": "bash wait.sh", "run_in_background": True}}]},
                {"text": "Started."},
            ]
        ),
        tools=["Bash"],
    )
    async with (
        Runtime(
            agent=agent, commands=Commands(sandbox="off"), permissions=Permissions(mode="bypassPermissions")
        ) as runtime,
        chat_in_process(runtime) as chat,
    ):
        await chat.say("Start it.")
        await chat.expect("Started.")
        (project / "later.txt").write_text("by a person\n")
        await chat.say("/diff")
        await chat.expect("changed while a command ran in the background: later.txt")
        await chat.say("/undo")
        await chat.expect("no file was restored")
        await chat.expect("not restored, they changed while a command ran in the background: later.txt")
        assert (project / "later.txt").exists()
        await chat.expect("/rewind 1 files force restores these too")
        await chat.say("/rewind 1 files force")
        await chat.expect("removed: later.txt")
    assert not (project / "later.txt").exists()
