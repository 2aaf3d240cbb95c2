"""A terminal and a server are two windows on the same sessions: each shows and continues what the other started."""

import httpx2

from tests.cli.chat.chat_terminal import CTRL_D, ChatTerminal
from tests.cli.shell import Shell, call_line, say_line
from tests.server_process import ServerProcess
from tests.unmeasured import without_coverage

MODEL = ("--model", "scripted:script.jsonl")


def open_chat(shell: Shell, *words: str) -> ChatTerminal:
    return ChatTerminal(shell, *MODEL, *words).expect_prompt("❯")


def test_the_terminal_shows_and_decides_turns_of_the_server(shell: Shell) -> None:
    shell.write_script(
        say_line("The server answers."),
        say_line("The terminal answers."),
        call_line("Write", file_path="boat.txt", content="canoe"),
        say_line("It is written."),
    )
    server = ServerProcess(shell.folder, without_coverage(shell.env), *MODEL, "--insecure", "--no-ui")
    turns = "/api/v1/sessions/shared/turns"
    with server, httpx2.Client(base_url=server.url, timeout=60) as client:
        first = client.post(turns, json={"input": "Begin here.", "agent": "assistant"})
        assert first.json()["text"] == "The server answers."
        with open_chat(shell, "--session", "shared") as chat:
            chat.expect("The server answers.")
            chat.say("And in the terminal?")
            chat.expect("The terminal answers.")
            client.post(turns, json={"input": "Write a file.", "background": True})
            chat.expect("Approve Write?")
            chat.send("y")
            chat.expect("It is written.")
            chat.send(CTRL_D)
            assert chat.wait_exit() == 0
        messages = client.get("/api/v1/sessions/shared/messages", params={"limit": 100}).json()["data"]
        texts = [part["text"] for message in messages for part in message["content"] if part["type"] == "text"]
        assert "And in the terminal?" in texts
        assert texts[-1] == "It is written."
        assert (shell.folder / "boat.txt").read_text() == "canoe"
