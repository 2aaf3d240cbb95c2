"""Without its libraries the chat says how to install them."""

import pytest

from tests.cli.chat.chat_terminal import ChatTerminal
from tests.cli.shell import Shell, say_line
from tests.without_library import vaka_without


@pytest.mark.parametrize("library", ["prompt_toolkit", "rich"])
@pytest.mark.parametrize(
    "words", [("--model", "scripted:script.jsonl"), ("--server", "http://127.0.0.1:1"), ("--resume",)]
)
def test_a_chat_without_a_library_names_the_extra(shell: Shell, library: str, words: tuple[str, ...]) -> None:
    shell.write_script(say_line("Hello."))
    with ChatTerminal(shell, program=vaka_without(library, "chat", *words), columns=120) as chat:
        chat.expect(f"error: {library} is not installed; add it with: pip install 'vaka[tui]'")
        assert chat.wait_exit() == 3
