"""A conversation with an agent of a server."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from vaka.cli.chat.conversation import Chat, ChatSettings
from vaka.cli.chat.prompt import ChatPrompt
from vaka.cli.chat.slash_commands import SlashCommands
from vaka.cli.display.plain_renderer import diff_of
from vaka.cli.kit.errors import UsageError
from vaka.cli.remote.client import ServerClient
from vaka.cli.remote.flags import CHAT_FLAGS, check_remote_flags, read_key
from vaka.cli.remote.runtime import RemotePrompter, RemoteRuntime, RemoteSession
from vaka.cli.strings import translate
from vaka.core.types.errors import InvalidInput
from vaka.runtime.runtime import Runtime
from vaka.runtime.session import Session

LOCAL_COMMANDS = frozenset(
    {
        "tools",
        "mcp",
        "undo",
        "context",
        "usage",
        "cost",
        "permissions",
        "plan",
        "copy",
        "doctor",
    }
)
"""The slash commands that need what only the process of the turns has."""


class RemoteChat(Chat):
    """One session of a server at the terminal; its turns go on when the chat is left."""

    def __init__(self, runtime: RemoteRuntime, session: RemoteSession, settings: ChatSettings) -> None:
        self._remote = runtime
        runtime.client.on_lost = self.print_note
        # They have those methods that the chat and its remaining commands use.
        super().__init__(cast("Runtime", runtime), cast("Session", session), settings)

    def _make_commands(self) -> SlashCommands:
        return RemoteCommands(self)

    def _make_prompter(self) -> RemotePrompter:
        return RemotePrompter(self._remote, self.session.id, ChatPrompt(self))

    def _continue_command(self) -> str:
        return f"vaka chat --server {self._remote.client.url} --session {self.session.id}"

    def change_mode(self, mode: str) -> None:
        """Print that the server decides the mode."""
        self.print_error(translate("the server decides the permission mode"))

    async def _list_files(self) -> None:
        """List none: the files are on the server."""

    async def _call_tools(self, text: str, calls: Sequence[Any]) -> None:
        raise InvalidInput("a command or a note is for the folder of the agent, which is on the server; ask the agent")


class RemoteCommands(SlashCommands):
    """The slash commands that work with a server."""

    def __init__(self, conversation: Chat) -> None:
        super().__init__(conversation)
        self._conversation = conversation
        self._commands = {name: each for name, each in self._commands.items() if name not in LOCAL_COMMANDS}

    async def run(self, text: str) -> None:
        """Run a command. Raises ``UsageError`` if it is unknown or needs the process of the turns."""
        name = text.strip().partition(" ")[0]
        if name in LOCAL_COMMANDS:
            raise UsageError(f"/{name} does not work with --server; /help lists what does")
        await super().run(text)

    async def _diff(self, argument: str) -> None:
        chat, is_shown = self._conversation, False
        for call, body in chat.view.cards:
            if diff_of(body.result):
                chat.screen.print(chat.renderer.tool_call(call, body.result, full=True) + "\n")
                is_shown = True
        if not is_shown:
            chat.print_note(translate("no file was changed by a tool in what this terminal has shown"))

    async def _model(self, argument: str) -> None:
        self._conversation.model = argument or self._conversation.model
        name = self._conversation.model_name or translate("the model of the server")
        self._conversation.print_note(translate("model: {name}", name=name))


async def converse_on_server(flags: Mapping[str, Any], settings: ChatSettings, prompt: str, keys: str) -> int:
    """Converse with an agent of the server of the flags until the user leaves; return the exit code."""
    check_remote_flags(CHAT_FLAGS)
    async with ServerClient(flags["server_url"], read_key(flags["api_key_file"])) as client:
        runtime = RemoteRuntime(client, flags["agent"] or "")
        chat = RemoteChat(runtime, await runtime.open(id=flags["session"] or ""), settings)
        chat.model = flags["model"] or ""
        return await chat.run(prompt, keys=keys)
