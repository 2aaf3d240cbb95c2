"""Whole conversations in pseudo-terminals, compared with approved screens.

The screens are text files in ``screens/``. After a change of what the chat shows, run
``VAKA_RENEW_SCREENS=1 pytest tests/cli/chat/test_conversations.py`` and look at the difference with ``git diff``.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat.chat_terminal import CTRL_O, ENTER, ESCAPE, ChatTerminal
from tests.cli.shell import AGENT_FILE, Shell

SCREENS = Path(__file__).with_name("screens")
RENEW = bool(os.environ.get("VAKA_RENEW_SCREENS"))
WORDS = (
    "--agent",
    "piped.py",
    "--session",
    "s",
    "--allow",
    "gate",
    "--allow",
    "hang",
    "--permission-mode",
    "acceptEdits",
)

PIPED_AGENT = f'''{AGENT_FILE}

import json

from vaka.core.ports.model import CallChunk, StopChunk, TextChunk, UsageChunk
from vaka.core.types.message import Usage


class PipedModel:
    """A model whose answers a test writes into a pipe, one piece on each line."""

    name = "piped"

    async def stream(self, prompt):
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, open("model", "rb"))
        try:
            async for chunk in self.read(reader):
                yield chunk
        finally:
            transport.close()

    async def read(self, reader):
        index = 0
        while piece := json.loads(await reader.readline()):
            if "text" in piece:
                yield TextChunk(piece["text"])
            else:
                yield CallChunk(index=index, name=piece["name"], arguments=json.dumps(piece["arguments"]))
                index += 1
        yield UsageChunk(Usage(input=2000, output=100, cost=0.01))
        yield StopChunk("calls" if index else "end")


agent = vaka.Agent("payer", model=PipedModel(), tools=[*tools, "Write"], middleware=[Careful()])
'''


class PipedModel:
    """Writes what the model of a chat answers; the chat must have read an answer before the next one is written."""

    def __init__(self, shell: Shell) -> None:
        path = shell.folder / "model"
        os.mkfifo(path)
        self._pipe = os.open(path, os.O_RDWR)  # so that it is never without a writer

    def say(self, *texts: str, end: bool = True) -> None:
        self._write([{"text": text} for text in texts], end)

    def call(self, name: str, *calls: dict[str, Any]) -> None:
        self._write([{"name": name, "arguments": arguments} for arguments in calls], True)

    def _write(self, pieces: list[dict[str, Any]], end: bool) -> None:
        lines = [*pieces, {}] if end else pieces
        os.write(self._pipe, "".join(json.dumps(line) + "\n" for line in lines).encode())

    def close(self) -> None:
        os.close(self._pipe)


@pytest.fixture
def model(shell: Shell) -> Iterator[PipedModel]:
    shell.write_file("piped.py", PIPED_AGENT)
    piped = PipedModel(shell)
    yield piped
    piped.close()


def open_chat(shell: Shell, **more: Any) -> ChatTerminal:
    return ChatTerminal(shell, *WORDS, rows=24, HOME=str(shell.folder), **more).expect_prompt("❯")


def mask(text: str) -> str:
    """Replace what differs from run to run."""
    text = re.sub("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", "⠋", text)
    text = re.sub(r"\b(\d+m )?\d+s\b", "0s", text)
    return re.sub(r"vaka \d+\.\d+\S*", "vaka VERSION", text)


def check_screen(chat: ChatTerminal, name: str) -> None:
    """Wait until a terminal shows an approved screen, or with ``VAKA_RENEW_SCREENS`` approve what it shows."""
    file = SCREENS / f"{name}.txt"
    if RENEW:
        chat.read_for(2.0)
        file.write_text(mask(chat.visible) + "\n", encoding="utf-8")
    approved = file.read_text("utf-8").rstrip("\n").splitlines()
    # How far the lines have scrolled depends on the frames that were drawn, so the last lines are compared.
    chat.wait_until(
        lambda: mask(chat.text).splitlines()[-len(approved) :] == approved,
        "\n".join([f"the screen {name}.txt:", *approved]),
    )


def open_gate(shell: Shell) -> None:
    with (shell.folder / "go").open("w") as pipe:
        pipe.write("open")


def test_a_conversation_with_approvals_an_interrupt_a_steer_and_an_undo(shell: Shell, model: PipedModel) -> None:
    os.mkfifo(shell.folder / "go")
    with open_chat(shell) as chat:
        chat.say("Tell me about boats.")
        model.say("## Boats\n\nThere are **two** kinds:\n\n- can", "oes\n- ships\n\n```py\nx = 1\nif x:", end=False)
        check_screen(chat, "streaming")
        model.say("\n    print(x)\n```\n\nThat is all.")
        chat.expect("That is all.")

        chat.say("Pay.")
        model.call("pay", {"amount": 1}, {"amount": 2})
        check_screen(chat, "two-approvals")
        chat.send("Which one?")
        chat.expect("❯ Which one?")
        chat.send(ENTER)  # a prompt, although the approval is open
        chat.expect("❯ Which one?\n")
        chat.send("y")
        chat.expect('"amount": 2')
        chat.send("n")
        chat.expect("Reason")
        chat.say("too much")
        model.say("I paid once.")
        chat.expect("I paid once.")
        check_screen(chat, "decided")

        chat.say("Wait for long.")
        model.call("hang", {})
        chat.expect("○ hang")
        chat.send(ESCAPE)
        chat.expect("interrupted")
        chat.say("Wait for the gate.")
        model.call("gate", {"path": "go"})
        chat.expect("○ gate")
        chat.say("And hurry.")
        chat.expect("❯ And hurry.")
        check_screen(chat, "steered")
        open_gate(shell)
        model.say("Hurried.")
        chat.expect("Hurried.")

        chat.say("Write a file.")
        model.call("Write", {"file_path": "boat.txt", "content": "canoe\n" * 20})
        chat.expect("● Write")
        model.say("Written.")
        chat.expect("Written.")
        assert (shell.folder / "boat.txt").exists()
        chat.send(CTRL_O)
        chat.say("/undo")
        chat.expect("taken back")
        check_screen(chat, "undone")
    assert not (shell.folder / "boat.txt").exists()


def test_a_session_in_two_terminals_one_of_which_is_killed(shell: Shell, model: PipedModel) -> None:
    os.mkfifo(shell.folder / "go")
    with open_chat(shell) as first:
        first.say("Pay.")
        model.call("pay", {"amount": 3})
        first.expect("Approve pay?")
        with open_chat(shell, columns=60) as second:
            check_screen(second, "second-terminal")
            second.send("y")
            first.expect("Approve", gone=True)
            model.call("gate", {"path": "go"})
            first.expect("○ gate")
            second.expect("○ gate")
            first.say("From the first.")
            second.expect("❯ From the first.")
            second.say("From the second.")
            first.expect("❯ From the second.")
            check_screen(first, "both-steered")
        first.kill()
    with open_chat(shell) as third:
        third.expect("unfinished work")
        check_screen(third, "reopened")
        third.say("/resume")
        open_gate(shell)
        model.say("It is done.")
        third.expect("It is done.")
        check_screen(third, "resumed")
