"""``vaka chat --server``: a conversation with an agent of a server."""

from tests.cli.chat.chat_terminal import CTRL_D, ESCAPE, SHIFT_TAB, ChatTerminal
from tests.cli.remote.conftest import ServerShell


def open_chat(served: ServerShell, *words: str) -> ChatTerminal:
    return ChatTerminal(served, *words, "--server", served.url, columns=100).expect_prompt("❯")


def test_a_chat_shows_turns_asks_for_decisions_and_interrupts(served: ServerShell) -> None:
    with open_chat(served, "--agent", "payer", "--session", "chat") as chat:
        chat.say("Pay.")
        chat.expect("Approve pay?")
        chat.send("y")
        chat.expect("paid 5")
        chat.expect("All done.")
        chat.send(SHIFT_TAB)
        chat.expect("the server decides the permission mode")
        chat.say("/mcp")
        chat.expect("/mcp does not work with --server")
        chat.say("!ls")
        chat.expect("which is on the server")
        chat.say("/model fast")
        chat.expect("model: fast")
        chat.say("/fork")
        chat.expect("ses_fork_")
        chat.say(f"/export {served.folder}/chat.md")
        chat.expect("written to")
        chat.send(CTRL_D)
        chat.expect(f"continue with: vaka chat --server {served.url} --session ses_fork_")
        assert chat.wait_exit() == 0
    assert "All done." in (served.folder / "chat.md").read_text()


def test_a_turn_of_a_chat_is_interrupted_and_the_session_is_shown_again(served: ServerShell) -> None:
    with open_chat(served, "--agent", "hanger", "--session", "hanging") as chat:
        chat.say("Hang.")
        chat.expect("Esc interrupts")
        chat.send(ESCAPE)
        chat.expect("interrupted at the terminal")
        chat.send(CTRL_D)
        chat.expect("continue with:")
    with open_chat(served, "--session", "hanging") as chat:
        chat.expect("interrupted at the terminal")
        chat.say("/resume hanging")
        chat.expect("interrupted at the terminal", times=2)
        chat.say("/clear")
        chat.expect("a new session:")
        chat.send(CTRL_D)
        assert chat.wait_exit() == 0


def test_flags_of_local_turns_are_refused(served: ServerShell) -> None:
    screen = served.terminal("chat", "--server", served.url, "--sandbox", "off")
    screen.expect("--sandbox does not go with --server")
    assert screen.wait_exit() == 2
    screen = served.terminal("chat", "--api-key-file", "x")
    screen.expect("--api-key-file goes with --server")
    assert screen.wait_exit() == 2
