"""Pasted text in the input of a chat."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat.chat_in_process import chat_in_process
from tests.cli.chat.chat_terminal import ENTER
from vaka import Agent, Runtime
from vaka.core.types.message import UserMessage, text_of
from vaka.models.scripted import Scripted

BEGIN = "\x1b[200~"
END = "\x1b[201~"
BACKSPACE = "\x7f"
CTRL_G = "\x07"


async def test_a_long_paste_is_folded_sent_whole_edited_and_cannot_send_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "sed -i s/line/row/")
    monkeypatch.delenv("VISUAL", raising=False)
    lines = "\r".join(f"line {number}" for number in range(120))
    agent: Agent[Any] = Agent("talker", model=Scripted([{"text": "Fine.", "repeat": True}]))
    async with Runtime(agent=agent) as runtime, chat_in_process(runtime, history=tmp_path / "history") as chat:
        chat.send(f"See {BEGIN}{lines}{END}")
        await chat.expect("❯ See [pasted 120 lines]")
        chat.send(f" and {BEGIN}{'x' * 2000}{END}")
        await chat.expect("[pasted 2000 characters]")
        chat.send(BACKSPACE)
        await chat.expect("[pasted 2000 characters]", gone=True)
        chat.send("why?")
        await chat.expect("and why?")
        chat.send(ENTER)
        await chat.expect("more lines")
        await chat.expect("Fine.")
        chat.send(f"{BEGIN}one{END}\r/exit\r{BEGIN}two{END}\x03{END}")
        await chat.expect("two")
        assert chat.buffer.text == "one\n/exit\ntwo\x03"
        chat.buffer.reset()
        chat.send(f"{BEGIN}{lines}{END}{CTRL_G}")
        await chat.expect("row 119")
        messages = await chat.chat.session.messages()
    (sent,) = [text_of(message.content) for message in messages if isinstance(message, UserMessage)]
    assert sent == f"See {lines.replace(chr(13), chr(10))} and why?"
    assert "+line 119" in (tmp_path / "history").read_text()
