"""A session belongs to its folder and remembers how it was run, whichever folder a later command is started in."""

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from inline_snapshot import snapshot

import vaka
from tests.cli.shell import Shell, call_line, say_line
from vaka.cli.kit.errors import ErrorDescription, Quit, UsageError, describe_error
from vaka.cli.main import cli
from vaka.config.options import Workspace
from vaka.core.types.control import RunSettings
from vaka.core.types.errors import ConfigError, InvalidInput, Suspended
from vaka.testing.models import ScriptedModel, call, say

CLEAN = "rm -rf build && pwd > cleaned"


def make_project(shell: Shell, name: str, *lines: dict[str, object]) -> Shell:
    """Return another project of the same user, with a folder ``build`` and a scripted model."""
    project = Shell(shell.folder / name)
    project.env = shell.env
    project.write_file("build/made", "")
    project.write_script(*lines)
    return project


@pytest.fixture
def a(shell: Shell) -> Shell:
    return make_project(shell, "a", call_line("Bash", command=CLEAN), say_line("Clean."), say_line("Hello."))


@pytest.fixture
def b(shell: Shell) -> Shell:
    return make_project(shell, "b", call_line("Bash", command=CLEAN), say_line("Swept."), say_line("Hi."))


def suspend(project: Shell, session: str) -> str:
    """Run until the command of the script waits for an approval; return its id."""
    words = ("run", "Clean.", "--session", session, "--model", "scripted:script.jsonl", "--sandbox", "off")
    done = project.vaka(*words, "--ask", "suspend", "--output", "json")
    assert done.code == 5, done.err
    id: str = done.json["decisions"][0]["id"]
    return id


def was_cleaned(project: Shell) -> bool:
    """Return whether the command ran in the folder of a project, and only there."""
    cleaned = project.folder / "cleaned"
    assert not cleaned.exists() or cleaned.read_text().strip() == str(project.folder)
    return cleaned.exists() and not (project.folder / "build").exists()


def test_effects_of_two_projects_land_in_their_own_folders_wherever_they_are_resolved_and_resumed(
    shell: Shell, a: Shell, b: Shell
) -> None:
    third = make_project(shell, "third")
    approvals = {"sa": suspend(a, "sa"), "sb": suspend(b, "sb")}
    listed = third.vaka("approvals", "list", "--json").json["decisions"]
    assert {row["session_id"]: row["folder"] for row in listed} == {"sa": str(a.folder), "sb": str(b.folder)}
    assert str(a.folder) in third.vaka("approvals", "list").out
    for id in approvals.values():
        assert third.vaka("approvals", "resolve", id, "--approve").code == 0
    resumed = third.vaka("run", "--session", "sa", "--resume")
    assert (resumed.code, resumed.out) == (0, "Clean.\n")
    assert "as it was run before: --sandbox off\n" in resumed.err
    assert f"→ Bash {CLEAN}" in resumed.err
    assert (was_cleaned(a), was_cleaned(b)) == (True, False)
    crossed = a.vaka("run", "Hi.", "--session", "sb")  # a prompt finishes the unfinished turn first
    assert (crossed.code, crossed.out) == (0, "Hi.\n")
    assert f"session sb belongs to {b.folder} and works there" in crossed.err
    assert f"→ Bash {CLEAN}" in crossed.err
    assert "an earlier turn has ended (end): Swept." in crossed.err
    assert (was_cleaned(a), was_cleaned(b)) == (True, True)
    assert [(project / "build/made").exists() for project in (third.folder, a.folder, b.folder)] == [True, False, False]


def test_the_last_session_is_that_of_this_project(a: Shell, b: Shell) -> None:
    id = suspend(a, "sa")
    assert b.vaka("approvals", "resolve", id, "--approve").code == 0
    refused = b.vaka("run", "Hi.", "-c", "--model", "scripted:script.jsonl")
    assert refused.code == 2
    assert "--all" in refused.err
    assert (was_cleaned(a), was_cleaned(b)) == (False, False)
    assert b.vaka("sessions", "list", "--json").json["sessions"] == []
    rows = b.vaka("sessions", "list", "--all", "--json").json["sessions"]
    assert b.vaka("sessions", "list", "--all", "--owner", "ann", "--tag", "sea", "--json").json["sessions"] == []
    assert [(row["id"], row["folder"]) for row in rows] == [("sa", str(a.folder))]
    a.write_file("sub/file", "")
    below = a.vaka("run", "Hi.", "-c", "--cwd", "sub", "--output", "json")
    assert (below.code, below.json["text"], below.json["session_id"]) == (0, "Hello.", "sa")
    assert was_cleaned(a)


def test_a_run_without_a_terminal_leaves_the_question_of_another_project_open(a: Shell, b: Shell) -> None:
    id = suspend(a, "sa")
    for words in (
        ("Hi.", "--session", "sa"),
        ("--resume", "-c", "--all"),
        ("--resume", "--session", "sa", "--ask", "deny"),
    ):
        done = b.vaka("run", *words)
        assert (done.code, f"waiting: {id}" in done.err) == (5, True)
    assert [row["id"] for row in a.pending_decisions()] == [id]


def test_flags_need_not_be_repeated_and_win_when_they_are(shell: Shell) -> None:
    shell.write_script(call_line("pay", amount=5), say_line("Paid."), say_line("On."), say_line("Off."))
    flags = ("--tools", "agent.py", "--model", "scripted:script.jsonl", "--confirm", "pay", "--max-steps", "9")
    first = shell.vaka("run", "Pay.", "--session", "s", *flags, "--ask", "suspend", "--output", "json")
    shell.vaka("approvals", "resolve", first.json["decisions"][0]["id"], "--approve")
    other = make_project(shell, "other", say_line("unused"), say_line("unused"), say_line("unused"), say_line("Mine."))
    done = other.vaka("run", "--session", "s", "--resume", "-v")
    assert (done.code, done.out) == (0, "Paid.\n")
    assert (shell.folder / "ledger").read_text() == "5\n"
    assert "--max-steps 9" in done.err
    shell.write_file("agent.py", (shell.folder / "agent.py").read_text() + "\n")
    again = shell.vaka("run", "Go on.", "-c")
    assert (again.code, again.out) == (0, "On.\n")
    assert f"{shell.folder}/agent.py has changed since session s was last run" in again.err
    assert "has changed" not in shell.vaka("run", "--session", "s", "--resume").err
    won = other.vaka("run", "More.", "--session", "s", "--model", "scripted:script.jsonl", "--max-steps", "4", "-q")
    assert (won.code, won.out) == (0, "Mine.\n")
    record = [event["data"]["run"] for event in shell.events("s") if event["type"] == "session.updated"][-1]
    assert (record["model"], record["flags"]["max_steps"]) == (f"scripted:{other.folder}/script.jsonl", 4)
    assert record["flags"]["confirm"] == ["pay"]


def test_a_session_whose_folder_is_gone_is_refused_until_it_is_moved(shell: Shell, a: Shell) -> None:
    shell.vaka("approvals", "resolve", suspend(a, "sa"), "--approve")
    moved = a.folder.rename(shell.folder / "moved")
    refused = shell.vaka("run", "--session", "sa", "--resume")
    assert (refused.code, "vaka sessions move sa" in refused.err) == (2, True)
    a.folder.mkdir()  # another folder of the same name
    replaced = shell.vaka("run", "--session", "sa", "--resume")
    assert (replaced.code, "another folder has that name now" in replaced.err) == (2, True)
    assert not (a.folder / "cleaned").exists()
    assert shell.vaka("sessions", "move", "sa", "moved").code == 0
    asked = shell.vaka("run", "--session", "sa", "--resume")
    assert asked.code == 5  # the approval was for the old folder
    shell.vaka("approvals", "resolve", shell.pending_decisions()[-1]["id"], "--approve")
    done = shell.vaka("run", "--session", "sa", "--resume")
    assert (done.code, (moved / "cleaned").read_text().strip()) == (0, str(moved))


async def test_a_session_without_a_record_works_in_the_folder_of_the_command_and_then_belongs_to_it(
    shell: Shell, a: Shell
) -> None:
    a.write_script(say_line("unused"), say_line("Here."))
    store = shell.folder / "data/vaka/vaka.db"
    store.parent.mkdir(parents=True)
    async with vaka.Runtime(store=f"sqlite:///{store}", model=ScriptedModel(say("First."))) as runtime:
        await (await runtime.open(vaka.Agent("assistant"), id="old")).run("Hello.")
    done = a.vaka("run", "Go on.", "-c", "--model", "scripted:script.jsonl", "--output", "json")
    assert (done.code, done.json["text"], done.json["session_id"]) == (0, "Here.", "old")
    assert "session old has no folder yet; it works here" in done.err
    assert shell.vaka("sessions", "list", "--all", "--json").json["sessions"][0]["folder"] == str(a.folder)


def test_secrets_are_not_part_of_the_record(shell: Shell) -> None:
    shell.write_script(say_line("Hi."))
    words = ("Hi.", "--session", "s", "--instructions", "Use s3cret-0123456789.", "--deny", "Bash(s3cret-0123456789)")
    assert shell.run(*words, EXAMPLE_API_KEY="s3cret-0123456789").code == 0
    exported = shell.vaka("sessions", "export", "s").out
    assert ('"run":{' in exported, "s3cret" in exported) == (True, False)


def test_files_are_restored_in_the_folder_of_the_session(a: Shell, b: Shell) -> None:
    a.write_script(call_line("Write", file_path="note", content="a"), say_line("Written."))
    words = ("Write.", "--session", "s", "--model", "scripted:script.jsonl", "--permission-mode", "acceptEdits")
    assert a.vaka("run", *words).code == 0
    b.write_file("note", "a")
    done = b.vaka("sessions", "rewind", "s@2", "--files")
    assert (done.code, done.out) == (0, "removed note\n")
    assert ((a.folder / "note").exists(), (b.folder / "note").exists()) == (False, True)


def test_a_run_without_a_terminal_does_not_wait_because_an_earlier_one_did(shell: Shell) -> None:
    shell.write_script(say_line("Hi."), call_line("pay", amount=5), say_line("Then not."))
    assert shell.run("Hi.", "--session", "s", "--ask", "wait").code == 0
    done = shell.vaka("run", "Pay.", "-c", "--output", "json")
    assert (done.code, done.json["status"], done.json["decisions"]) == (5, "denied", [])


@pytest.fixture
def vaka_in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., object]]:
    """A function that runs commands in this process, in a folder with a home of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with open(os.devnull) as stdin:  # noqa: PTH123  # a name of the system
        monkeypatch.setattr(sys, "stdin", stdin)
        yield lambda *words: cli.main([*words], standalone_mode=False)


def test_hints_name_the_store_and_a_call_is_not_made_in_a_session_with_an_unfinished_turn(
    tmp_path: Path, vaka_in_process: Callable[..., object], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "script.jsonl").write_text(json.dumps(call_line("Bash", command=CLEAN)))
    store = ("--store", "sqlite:///other.db")
    words = ("--session", "my session", "--model", "scripted:script.jsonl", "--ask", "suspend")
    with pytest.raises(Quit):
        vaka_in_process("run", "Clean.", *words, *store)
    err = capsys.readouterr().err
    assert re.search(r"· vaka approvals resolve apr_\w+ --store sqlite:///other.db --approve", err)
    assert "continue with: vaka run --session 'my session' --resume --store sqlite:///other.db\n" in err
    with pytest.raises(InvalidInput, match="has an unfinished turn or a queued input; finish it first: vaka run"):
        vaka_in_process("tools", "call", "Bash", '{"command": "pwd"}', "--session", "my session", *store)


def test_a_removed_working_folder_is_an_error_that_says_so(
    tmp_path: Path, vaka_in_process: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError) as failed:
        vaka_in_process("sessions", "list")
    assert describe_error(failed.value) == snapshot(
        ErrorDescription("config", "the current folder does not exist any more; change to another one with cd", 3)
    )


def test_an_error_about_what_a_session_was_run_with_names_the_flag_that_replaces_it(
    tmp_path: Path, vaka_in_process: Callable[..., object]
) -> None:
    store = f"sqlite:///{tmp_path}/vaka.db"
    file = f"{tmp_path}/tools.py"
    script = tmp_path / "script.jsonl"
    script.write_text(json.dumps(say_line("Hi.")))
    runs = {
        "tools": RunSettings(tools=(file,), model="scripted:x"),
        "model": RunSettings(model=f"scripted:{file}"),
        "agent": RunSettings(agent=f"{file}:agent"),
        "instructions": RunSettings(flags={"instructions": f"@{file}"}),
        "settings": RunSettings(model=f"scripted:{script}", flags={"settings": file}),
    }

    async def write_sessions() -> None:
        async with vaka.Runtime(
            store=store, workspace=Workspace(cwd=str(tmp_path)), model=ScriptedModel(say("Hi.", repeat=True))
        ) as rt:
            for id, run in runs.items():
                await (await rt.open(id=id, run_settings=run)).run("Hi.")

    asyncio.run(write_sessions())

    def run(session: str, *words: str) -> None:
        vaka_in_process("run", "Go on.", "--session", session, "--store", store, *words)

    for id in runs:
        with pytest.raises(ConfigError, match=f"; session '{id}' was last run with --{id} .*; give another --{id}$"):
            run(id)
    with pytest.raises(ConfigError, match=r"x\.py: there is no such file$"):
        run("tools", "--tools", "x.py")
    with pytest.raises(UsageError, match="--session is empty"):
        run("")


def test_an_approval_is_given_in_one_folder_and_used_in_another(shell: Shell) -> None:
    a, b, c = (make_project(shell, name, call_line("pay", amount=5), say_line("Paid.")) for name in "abc")
    flags = ("--tools", "../agent.py", "--model", "scripted:script.jsonl", "--confirm", "pay")
    first = a.vaka("run", "Pay.", "--session", "s", *flags, "--ask", "suspend", "--output", "json")
    assert first.code == 5
    resolved = b.vaka("approvals", "resolve", first.json["decisions"][0]["id"], "--approve")
    assert resolved.code == 0, resolved.err
    done = c.vaka("run", "--session", "s", "--resume", "--ask", "deny")
    assert (done.code, done.out) == (0, "Paid.\n")
    assert [(project.folder / "ledger").exists() for project in (a, b, c)] == [True, False, False]


async def test_a_session_that_a_program_began_without_a_folder_is_resumed_in_any_folder(shell: Shell) -> None:
    b, c = make_project(shell, "b"), make_project(shell, "c", say_line("Paid."))

    @vaka.tool
    def pay(amount: int) -> str:
        """Pay an amount."""
        raise AssertionError("the program only asks")

    agent = vaka.Agent("payer", model=ScriptedModel(call("pay", amount=5)), tools=[pay])
    async with vaka.Runtime(
        store=f"sqlite:///{shell.folder}/vaka.db", permissions=vaka.Permissions(confirm=["pay"], ask="suspend")
    ) as runtime:
        with pytest.raises(Suspended) as suspended:
            await (await runtime.open(agent, id="s")).run("Pay.")
    store = ("--store", f"sqlite:///{shell.folder}/vaka.db")
    resolved = b.vaka("approvals", "resolve", suspended.value.decisions[0], "--approve", *store)
    assert resolved.code == 0, resolved.err
    flags = ("--tools", "../agent.py", "--model", "scripted:script.jsonl", "--confirm", "pay", "--ask", "deny")
    done = c.vaka("run", "--session", "s", "--resume", *flags, *store)
    assert (done.code, done.out) == (0, "Paid.\n"), done.err
