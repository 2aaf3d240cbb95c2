"""Text that tries to control the terminal, or to freeze it, wherever it comes from."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat.chat_in_process import chat_in_process
from vaka import Agent, Runtime, ToolContext, tool
from vaka.config.options import Commands, Permissions
from vaka.models.scripted import Scripted

EVIL = "\x1b[2J\x1b[31mred\x1b]0;owned\x07\x9b5m\u202eltr\u2066\u200b\ufeffe" + "\u0301" * 7 + "\x08\x00\x7f"
NAME = EVIL.replace("\x00", "")
SEQUENCES = ("\x1b[2J", "\x1b[31mred", "\x1b]0;", "\x07", "\x9b", "\u202e", "\u2066", "\u200b", "\x08", "\x00", "\x7f")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@tool
async def shout(context: ToolContext, word: str) -> str:
    """Print and return a word."""
    context.emit(f"{word}\n")
    context.emit(f"unfinished {word}")
    return f"{word}\nagain {word}"


@tool
def fail(word: str) -> str:
    """Fail with a word."""
    raise ValueError(word)


async def test_no_text_controls_the_terminal(project: Path) -> None:
    (project / f"a{NAME}").write_text("x")
    lines: list[dict[str, Any]] = [
        {
            "reasoning": EVIL,
            "text": f"text {EVIL}\n\n```py\n{EVIL}\n```\n\n[{EVIL}](http://{EVIL})",
            "tool_calls": [
                {"name": "shout", "arguments": {"word": EVIL}},
                {"name": "fail", "arguments": {"word": EVIL}},
                {"name": f"no{EVIL}", "arguments": {EVIL: EVIL}},
                {"name": "Read", "arguments": {"file_path": f"b{NAME}"}},
            ],
        },
        {"tool_calls": [{"name": "Write", "arguments": {"file_path": f"c{NAME}", "content": EVIL}}]},
        {"text": "All harmless."},
    ]
    agent: Agent[Any] = Agent("shouter", model=Scripted(lines), tools=[shout, fail, "Read", "Write"])
    options: dict[str, Any] = {"commands": Commands(sandbox="off"), "permissions": Permissions(allow=["shout", "fail"])}
    async with Runtime(agent=agent, **options) as runtime, chat_in_process(runtime) as chat:
        await chat.say("Go.")
        await chat.expect("Approve Write?")
        chat.send("n")
        await chat.expect("Reason")
        chat.send(f"because \x1b[200~{EVIL}\x1b[201~\r")
        await chat.expect("All harmless.")
        for command in ("/sessions", "/context", "/usage", "/diff", "/approvals", "/todo"):
            chat.send(f"{command}\r")
        chat.send("@a")
        await chat.expect("❯ @a")
        written = chat.output.written
    assert [sequence for sequence in SEQUENCES if sequence in written] == []
    assert chat.screen.title == ""
    assert "\\u202eltr" in chat.text


@pytest.mark.parametrize("size", [1_000_000, pytest.param(5_000_000, marks=pytest.mark.exhaustive)])
async def test_a_long_line_does_not_stop_the_chat_from_answering_keys(size: int) -> None:
    line = "x" * size
    chunks = [line[:1000]] * 500 + [line[500_000:]]
    call = {"name": "shout", "arguments": {"word": line}}
    model = Scripted([{"chunks": chunks, "tool_calls": [call]}, {"text": "Still here."}])
    agent: Agent[Any] = Agent("shouter", model=model, tools=[shout])
    async with (
        Runtime(agent=agent, commands=Commands(sandbox="off"), permissions=Permissions(allow=["shout"])) as runtime,
        chat_in_process(runtime) as chat,
    ):
        await chat.say("Go.")
        chat.send("typed meanwhile")
        await chat.expect("❯ typed meanwhile")
        await chat.expect("Still here.")
        assert len(chat.output.written) < 500_000
        assert "more characters" in chat.text
