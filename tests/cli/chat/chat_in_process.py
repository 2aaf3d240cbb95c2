"""A chat in the process of the test: keys come from a pipe, and the screen is emulated by pyte."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

import pyte
from prompt_toolkit.application import create_app_session
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import PipeInput, create_pipe_input

from tests.cli.chat.chat_terminal import CTRL_D, ENTER
from tests.cli.shell import TIMEOUT
from vaka.cli.chat.conversation import Chat, ChatSettings
from vaka.cli.chat.screen import ChatScreen
from vaka.cli.chat.terminal import FrameOutput
from vaka.runtime.runtime import Runtime
from vaka.runtime.session import Session


class EmulatedScreen:
    """The stdout of a chat: what is written is drawn, and wakes the test that waits for it."""

    encoding = "utf-8"

    def __init__(self, columns: int, rows: int) -> None:
        self.screen: Any = pyte.HistoryScreen(columns, rows, history=5000)
        self._stream: Any = pyte.Stream(self.screen)
        self.written = ""
        """Everything that was written, escape sequences included."""
        self.changed = asyncio.Event()

    def write(self, text: str) -> None:
        self.written += text
        self._stream.feed(text)
        self.changed.set()

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1


class InProcessChat:
    """A running chat. ``expect`` waits for text on the screen or in the scroll-back."""

    def __init__(self, chat: Chat, keys: PipeInput, output: EmulatedScreen) -> None:
        self.chat = chat
        self._keys = keys
        self.output = output
        self.screen = output.screen
        self._above: list[str] = []

    @property
    def buffer(self) -> Buffer:
        """The input."""
        assert isinstance(self.chat.screen, ChatScreen)
        return self.chat.screen.buffer

    def send(self, text: str) -> None:
        self._keys.send_text(text)

    async def say(self, text: str) -> None:
        """Enter a line, once the chat shows it in its input."""
        self.send(text)
        await self.expect(text)
        self.send(ENTER)

    async def expect(self, text: str, *, gone: bool = False) -> None:
        """Wait until a text is shown, or with ``gone`` until it is on the screen no more."""
        try:
            async with asyncio.timeout(TIMEOUT):
                while (text in self.visible) if gone else (text not in self.text):
                    self.output.changed.clear()
                    await self.output.changed.wait()
        except TimeoutError:
            raise AssertionError(f"{text!r} {'stayed' if gone else 'did not appear'}:\n{self.text}") from None

    @property
    def visible(self) -> str:
        """The lines of the screen."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip("\n")

    @property
    def text(self) -> str:
        """The scroll-back and the lines of the screen. Lines of the scroll-back do not change, so each is read once."""
        columns, above = range(self.screen.columns), self.screen.history.top
        if len(above) < len(self._above) or len(above) == above.maxlen:  # it was cleared, or its first lines are gone
            self._above = []
        for line in islice(above, len(self._above), None):
            self._above.append("".join(line[column].data for column in columns).rstrip())
        return "\n".join([*self._above, self.visible])


@asynccontextmanager
async def chat_in_process(
    runtime: Runtime, session: Session[Any] | None = None, *, columns: int = 80, rows: int = 30, **settings: Any
) -> AsyncGenerator[InProcessChat]:
    """Run a chat, and leave it at the end."""
    output = EmulatedScreen(columns, rows)
    size = Size(rows=rows, columns=columns)
    terminal = FrameOutput(output, lambda: size, term="xterm")  # type: ignore[arg-type]  # it has what is used of a stream
    with create_pipe_input() as keys, create_app_session(input=keys, output=terminal):
        chat = Chat(runtime, session or await runtime.open(), ChatSettings(**settings))
        task = asyncio.create_task(chat.run())
        shown = InProcessChat(chat, keys, output)
        try:
            await shown.expect("❯")
            yield shown
            shown.send("\x1b" if chat.screen.asking else "")
            shown.buffer.reset()
            shown.send(CTRL_D)
            await task
        finally:
            task.cancel()
