"""Commands and notes that a person types at the prompt."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat.chat_in_process import chat_in_process
from vaka import Agent, Runtime
from vaka.config.options import Commands, Permissions
from vaka.core.types.message import ToolMessage, UserMessage, text_of
from vaka.models.scripted import Scripted


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def coding_runtime(*lines: dict[str, Any], **options: Any) -> Runtime:
    """Return a runtime whose rules ask before a command or a change."""
    agent: Agent[Any] = Agent("coder", model=Scripted(lines), tools=["Bash", "Read", "Edit", "Write"])
    return Runtime(agent=agent, commands=Commands(sandbox="off"), **options)


async def test_a_typed_command_runs_under_the_rules_and_the_model_sees_its_output() -> None:
    expectation = {"text": "I see.", "expect": {"messages_at_least": 4}}
    async with coding_runtime(expectation) as runtime, chat_in_process(runtime) as chat:
        await chat.say("!touch boat; seq 9")
        await chat.expect("● Bash touch boat; seq 9\n")
        await chat.expect("  │ 9")
        assert "more lines" not in chat.text
        assert "approved by" not in chat.text
        assert "approval.requested" in [event.type for event in await chat.chat.session.last_turn()]
        await chat.say("What was that?")
        await chat.expect("I see.")
        messages = await chat.chat.session.messages()
        types = [event.type for event in await chat.chat.session.last_turn()]
    assert Path("boat").exists()
    first, _, result, *_ = messages
    assert isinstance(first, UserMessage)
    assert text_of(first.content) == "!touch boat; seq 9"
    assert isinstance(result, ToolMessage)
    assert result.results[0].text.startswith("1\n2\n3")
    assert types[-1] == "turn.completed"


async def test_a_typed_command_that_a_rule_denies_does_not_run() -> None:
    async with (
        coding_runtime(permissions=Permissions(deny=["Bash(touch:*)"])) as runtime,
        chat_in_process(runtime) as chat,
    ):
        await chat.say("!touch boat")
        await chat.expect("✗ Bash touch boat")
        await chat.say("!")
        await chat.expect("type the command")
    assert not Path("boat").exists()


async def test_a_note_is_added_to_the_memory_file_once_it_is_chosen(project: Path) -> None:
    async with coding_runtime() as runtime, chat_in_process(runtime) as chat:
        await chat.say("#use tabs")
        await chat.expect("create: [a] AGENTS.md · [c] CLAUDE.md")
        chat.send("c")
        await chat.expect("● Write CLAUDE.md")
        await chat.say("# keep it short")
        await chat.expect("+ - keep it short")
        (project / "AGENTS.md").write_text("# Rules\r\n\r\n- one\r\n- one", newline="")
        await chat.say("#be kind")
        await chat.expect("Add the note to")
        chat.send("a")
        await chat.expect("+ - be kind")
    assert (project / "CLAUDE.md").read_text() == "- use tabs\n- keep it short\n"
    assert (project / "AGENTS.md").read_bytes() == b"# Rules\r\n\r\n- one\r\n- one\r\n- be kind\r\n"


async def test_a_link_between_the_memory_files_is_one_file_and_a_note_can_be_undone(project: Path) -> None:
    (project / "AGENTS.md").write_text("- same\n- same\n")
    (project / "CLAUDE.md").symlink_to("AGENTS.md")
    async with coding_runtime() as runtime, chat_in_process(runtime) as chat:
        await chat.say("#use spaces")
        await chat.expect("+ - use spaces")
        await chat.expect("Esc interrupts", gone=True)
        assert (project / "AGENTS.md").read_text() == "- same\n- same\n- use spaces\n"
        await chat.say("/undo")
        await chat.expect("taken back")
    assert (project / "AGENTS.md").read_text() == "- same\n- same\n"
