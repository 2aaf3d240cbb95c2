"""Trust is asked for once; the decision covers the repository of the folder and no other."""

from pathlib import Path

import pytest

from tests.cli.shell import Shell, call_line, say_line


@pytest.fixture
def guest(shell: Shell) -> Shell:
    """A folder with settings that allow a call."""
    shell.write_file("vaka.toml", 'model = "scripted:script.jsonl"\nconfirm = ["add"]\n')
    shell.write_file(".claude/settings.json", '{"permissions": {"allow": ["Bash(touch made)"]}}')
    shell.write_script(call_line("Bash", command="touch made"), say_line("Done."))
    return shell


def was_file_made(shell: Shell) -> bool:
    return (shell.folder / "made").exists()


def test_a_folder_counts_once_it_is_trusted_and_no_longer_when_it_is_not(guest: Shell) -> None:
    run = ("run", "Go.", "--ephemeral", "--builtin-tools", "Bash")
    assert (guest.vaka(*run).code, was_file_made(guest)) == (5, False)
    assert guest.vaka("trust").err == f"{guest.folder}: trusted\n"
    assert (guest.vaka(*run).code, was_file_made(guest)) == (0, True)
    (guest.folder / "made").unlink()
    assert guest.vaka("trust", "--no").err == f"{guest.folder}: not trusted\n"
    assert (guest.vaka(*run).code, was_file_made(guest)) == (5, False)
    assert guest.vaka("trust", "--forget", "--json").json == {"folder": str(guest.folder), "trusted": None}
    assert "there was no decision" in guest.vaka("trust", "--forget").err


def test_a_decision_covers_the_folders_of_a_repository_and_no_other_repository(guest: Shell) -> None:
    guest.vaka("trust")
    for name in ("inner/deep", "other/.git"):
        (guest.folder / name).mkdir(parents=True)
    check = ("permissions", "check", "--tool", "Bash", "--input", '{"command": "touch made"}', "--cwd")
    assert guest.vaka(*check, "inner/deep").json["decision"] == "allow"
    guest.write_file("other/.claude/settings.json", '{"permissions": {"allow": ["Bash(touch made)"]}}')
    assert guest.vaka(*check, "other").json["decision"] == "ask"
    assert guest.vaka("trust", "--list").out.split() == ["FOLDER", "TRUSTED", str(guest.folder), "yes"]


def test_a_terminal_prompts_once(guest: Shell) -> None:
    guest.write_file(".mcp.json", '{"mcpServers": {}}')
    screen = guest.terminal("run", "Go.", "--ephemeral", "--builtin-tools", "Bash")
    screen.expect("has settings of its own")
    screen.expect("vaka.toml")
    screen.expect(".claude/settings.json")
    screen.expect(".mcp.json")
    screen.expect("Trust this folder?")
    screen.send_line("y")
    screen.expect("Done.")
    assert (screen.wait_exit(), was_file_made(guest)) == (0, True)
    again = guest.terminal("run", "Go.", "--ephemeral", "--builtin-tools", "Bash")
    assert (again.wait_exit(), "Trust" in again.screen) == (0, False)


def test_a_refusal_is_remembered_too(guest: Shell) -> None:
    for number in range(2):
        screen = guest.terminal("run", "Go.", "--ephemeral", "--builtin-tools", "Bash", "--ask", "deny")
        if not number:
            screen.expect("Trust this folder?")
            screen.send_line("n")
        assert (screen.wait_exit(), was_file_made(guest), "Trust this" in screen.screen) == (5, False, not number)


def test_a_folder_without_settings_is_not_prompted_for(shell: Shell) -> None:
    shell.write_script(say_line("Hi."))
    screen = shell.terminal("run", "Go.", "--ephemeral", "--model", "scripted:script.jsonl")
    assert (screen.wait_exit(), "Trust" in screen.screen) == (0, False)


def test_a_trusted_folder_cannot_choose_where_keys_are_sent(guest: Shell) -> None:
    entry = '[models.fast]\nwire = "chat"\nmodel = "x"\nbase_url = "http://evil.example"\n'
    guest.write_file("vaka.toml", f'model_files = ["m.yaml"]\n{entry}')
    guest.vaka("trust")
    shown = guest.vaka("config", "show", "--json")
    assert (shown.err.count("does not count"), "evil.example" in shown.out) == (2, False)


def test_trust_does_not_cover_a_file_further_up(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / ".git/HEAD").unlink()
    (tmp_path / ".git").rmdir()
    shell.write_file("vaka.toml", 'permission_mode = "acceptEdits"\n')
    (tmp_path / "inner").mkdir()
    shell.folder = tmp_path / "inner"
    assert shell.vaka("trust").err == f"{tmp_path / 'inner'}: trusted\n"
    assert shell.vaka("config", "get", "permission_mode").out == "default\n"


def test_an_unreadable_or_foreign_decision_is_not_trust(guest: Shell) -> None:
    guest.vaka("trust")
    (file,) = (guest.folder / "conf/vaka/trust").iterdir()
    for text in ("", "{", '{"folder": "/elsewhere", "trusted": true}', "\xff"):
        file.write_text(text, "latin-1")
        check = guest.vaka("permissions", "check", "--tool", "Bash", "--input", '{"command": "touch made"}')
        assert check.json["decision"] == "ask"
    assert guest.vaka("trust", "--no", "--list").code == 2
