"""``vaka sessions rewind --files``: files are restored with their session."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from tests.cli.shell import Shell, call_line, say_line
from vaka.agents.react import Agent
from vaka.config.options import Permissions, Workspace
from vaka.runtime.runtime import Runtime
from vaka.stores.sqlite import SqliteStore
from vaka.testing.models import ScriptedModel, call, say
from vaka.tools.builtin import builtin_tools


async def edit_files(folder: Path) -> None:
    """Let a session write two files, one of them twice."""
    store = SqliteStore(folder / "vaka.db")
    model = ScriptedModel(
        call("Write", file_path="a.txt", content="one"),
        say("1"),
        call("Write", file_path="a.txt", content="two"),
        call("Write", file_path="b.txt", content="new"),
        say("2"),
    )
    async with Runtime(
        store=store, workspace=Workspace(cwd=str(folder)), permissions=Permissions(mode="bypassPermissions")
    ) as runtime:
        session = await runtime.open(Agent("writer", model=model, tools=builtin_tools(["Write"])), id="s")
        await session.run("One.")
        await session.checkpoint("before")
        await session.run("Two.")
    await store.close()


@pytest.fixture
def wrote(shell: Shell) -> Shell:
    """A store with a session that wrote files."""
    shell.env["VAKA_STORE"] = f"sqlite:///{shell.folder}/vaka.db"
    asyncio.run(edit_files(shell.folder))
    return shell


def read_files(shell: Shell) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(shell.folder.glob("*.txt"))}


def test_a_dry_run_prints_the_changes_and_makes_none(wrote: Shell) -> None:
    events = wrote.events("s")
    done = wrote.vaka("sessions", "rewind", "s@before", "--files", "--dry-run")
    assert (done.code, done.out) == (0, "would restore a.txt\nwould remove b.txt\n")
    assert read_files(wrote) == {"a.txt": "two", "b.txt": "new"}
    assert wrote.events("s") == events


def test_files_are_restored_with_the_session(wrote: Shell) -> None:
    done = wrote.vaka("sessions", "rewind", "s@before", "--files")
    assert (done.code, done.out) == (0, "restored a.txt\nremoved b.txt\n")
    assert "s continues from" in done.err
    assert read_files(wrote) == {"a.txt": "one"}
    assert wrote.event_types("s")[-1] == "session.reverted"


def test_files_changed_since_need_force(wrote: Shell) -> None:
    (wrote.folder / "a.txt").write_text("mine")
    done = wrote.vaka("sessions", "rewind", "s", "before", "--files")
    assert done.code != 0
    assert "not overwritten: 'a.txt'; nothing was taken back; --force overwrites these files" in done.err
    assert read_files(wrote) == {"a.txt": "mine", "b.txt": "new"}
    files = wrote.vaka("sessions", "rewind", "s", "before", "--files", "--dry-run", "--json").json["files"]
    assert (files["changed"], files["restored"], files["removed"]) == (["a.txt"], ["a.txt"], ["b.txt"])
    assert wrote.vaka("sessions", "rewind", "s", "before", "--files", "--force").code == 0
    assert read_files(wrote) == {"a.txt": "one"}


def test_changes_of_commands_are_restored_and_what_stays_is_named(shell: Shell) -> None:
    shell.env["VAKA_STORE"] = f"sqlite:///{shell.folder}/vaka.db"
    shell.write_file(".gitignore", "*.log\n")
    shell.write_file("a.txt", "one")
    subprocess.run(["git", "init", "-q"], cwd=shell.folder, check=True)
    command = "echo two > a.txt; touch b.txt c.log; ln -s a.txt link"
    shell.write_script(call_line("Bash", command=command), say_line("Done."))
    run = ("run", "Go.", "--model", "scripted:script.jsonl", "--session", "s", "--sandbox", "off")
    assert shell.vaka(*run, "--permission-mode", "bypassPermissions").code == 0
    done = shell.vaka("sessions", "rewind", "s@1", "--files")
    assert (done.code, done.out) == (0, "restored a.txt\nremoved b.txt\nremoved link\n")
    assert "not restored, there is no copy: c.log" in done.err
    assert "commands ran: what they changed outside of the working folders is not known" in done.err
    assert (shell.folder / "a.txt").read_text() == "one"
    assert shell.vaka("sessions", "gc", "--json").json["folders"] == 0


def test_names_with_line_breaks_and_control_characters_are_one_escaped_line_each(shell: Shell) -> None:
    shell.env["VAKA_STORE"] = f"sqlite:///{shell.folder}/vaka.db"
    shell.write_script(call_line("Bash", command="touch $'a\\nb' $'c\\e[31md'"), say_line("Done."))
    run = ("run", "Go.", "--model", "scripted:script.jsonl", "--session", "s", "--sandbox", "off")
    assert shell.vaka(*run, "--permission-mode", "bypassPermissions").code == 0
    done = shell.vaka("sessions", "rewind", "s@1", "--files", "--dry-run")
    assert done.out == "would remove a\\nb\nwould remove c\\u001b[31md\n"


def test_one_command_without_a_record_is_named_with_the_reason(shell: Shell) -> None:
    shell.env["VAKA_STORE"] = f"sqlite:///{shell.folder}/vaka.db"
    shell.write_script(call_line("Bash", command="touch a"), say_line("Done."))
    run = ("run", "Go.", "--model", "scripted:script.jsonl", "--session", "s", "--sandbox", "off")
    shell.write_file("vaka.toml", 'snapshots = "off"\n')
    assert shell.vaka(*run, "--permission-mode", "bypassPermissions", "--trust").code == 0
    done = shell.vaka("sessions", "rewind", "s@1", "--files", "--dry-run")
    assert "1 command is not recorded; what it changed stays\n" in done.err


def test_without_the_flag_files_stay_as_they_are(wrote: Shell) -> None:
    assert wrote.vaka("sessions", "rewind", "s@before").code == 0
    assert read_files(wrote) == {"a.txt": "two", "b.txt": "new"}


@pytest.mark.parametrize("words", [["s"], ["s@before", "--force"], ["s@before", "--dry-run"]])
def test_invalid_arguments_exit_with_2(wrote: Shell, words: list[str]) -> None:
    assert wrote.vaka("sessions", "rewind", *words).code == 2
