"""``vaka store``: backups from a shell."""

import os

from tests.cli.shell import Shell, call_line, say_line


def test_a_backup_is_made_while_a_turn_runs_and_restored_elsewhere(shell: Shell) -> None:
    os.mkfifo(shell.folder / "pipe")
    shell.write_script(call_line("gate", path="pipe"), say_line("Through."))
    running = shell.start_run("Wait.", "--session", "s")
    running.read_until("tool.started")
    made = shell.vaka("store", "backup", "a.backup", "--json")
    assert (made.code, made.json["sessions"]) == (0, 1)
    refused = shell.vaka("store", "backup", "a.backup")
    assert (refused.code, "--force" in refused.err) == (2, True)
    busy = shell.vaka("store", "restore", "a.backup", "--replace")
    assert (busy.code, "used by another process" in busy.err) == (75, True)
    (shell.folder / "pipe").write_text("open")
    assert running.wait_result().code == 0
    assert shell.vaka("store", "restore", "a.backup").code == 2
    restored = shell.vaka("store", "restore", "a.backup", "--store", "sqlite:///copy.db")
    assert (restored.code, restored.err.startswith("restored a.backup: 1 sessions, ")) == (0, True)
    events = shell.vaka("sessions", "export", "s", "--store", "sqlite:///copy.db").lines
    assert [events[-2]["type"], events[-1]["id"]] == ["tool.started", f"2.{len(events)}"]
    assert shell.vaka("sessions", "verify", "--all", "--store", "sqlite:///copy.db").code == 0
    assert shell.vaka("store", "restore", "a.backup", "--replace").code == 0
    assert shell.event_types("s") == [event["type"] for event in events]


def test_errors_of_backups_have_the_exit_codes_of_others_and_no_password(shell: Shell) -> None:
    shell.write_file("text.backup", "hello")
    assert shell.vaka("store", "restore", "text.backup").code == 2
    assert shell.vaka("store", "restore", "missing.backup").code == 2
    assert shell.vaka("store", "backup", "a.backup", "--store", "memory:").code == 2
    assert shell.vaka("store", "backup", "none/a.backup", "--store", "sqlite:///none.db").code in {2, 3}
    address = "postgresql://kim:hunter2@127.0.0.1:1/vaka"  # not a secret
    for words in (("backup", "b.backup"), ("restore", "text.backup")):
        done = shell.vaka("store", *words, "--store", address)
        assert done.code in {2, 3}
        assert "hunter2" not in done.out + done.err
    assert not (shell.folder / "b.backup").exists()
