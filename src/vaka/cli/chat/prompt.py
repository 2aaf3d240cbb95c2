"""Questions of the chat: in place of the input, with an editor for longer answers."""

import sys
from typing import TYPE_CHECKING

from prompt_toolkit.application import in_terminal

from vaka.cli.chat.screen import ChatScreen
from vaka.cli.turn.terminal_prompt import edit_in_editor

if TYPE_CHECKING:
    from vaka.cli.chat.conversation import Chat

_MARGIN = 12
"""Lines of the terminal that a question leaves for what is around it."""


class ChatPrompt:
    """Asks at the bottom of a chat; a question that is left with Escape stays open."""

    may_leave = True

    def __init__(self, chat: "Chat") -> None:
        self._chat = chat

    @property
    def size(self) -> tuple[int, int]:
        screen = self._chat.screen
        return screen.columns, max(screen.rows - _MARGIN, 4) if isinstance(screen, ChatScreen) else sys.maxsize

    async def ask(self, text: str, prompt: str, keys: str = "") -> str | None:
        shown = f"{text}\n{prompt}" if text else prompt
        return await self._chat.screen.ask(lambda: self._chat.renderer.panel(shown), keys)

    def echo(self, text: str) -> None:
        self._chat.screen.print(f"{self._chat.renderer.panel(text)}\n")

    async def edit(self, text: str) -> str | None:
        if not isinstance(self._chat.screen, ChatScreen):
            return None  # lines are read from the terminal, which an editor cannot share
        async with in_terminal():
            return await edit_in_editor(text, self.echo)
