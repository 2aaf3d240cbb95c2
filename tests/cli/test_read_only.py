"""Commands that only read work where the database cannot be written: a read-only mount, with and without a log."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import TIMEOUT, CommandResult, Shell, call_line, say_line
from tests.newer_vaka import NewerVaka, next_migration
from tests.unmeasured import without_coverage

READS = (
    ("sessions", "list"),
    ("sessions", "show", "s"),
    ("sessions", "export", "s"),
    ("sessions", "verify", "--all"),
    ("approvals", "list"),
    ("sessions", "messages", "s"),
    ("sessions", "search", "pump"),
    ("sessions", "export", "s", "--format", "messages"),
    ("trace", "show", "s"),
    ("sessions", "stats", "s"),
    ("doctor",),
    ("config", "show"),
)


def run_read_only(shell: Shell, *words: str, **env: str) -> CommandResult:
    """Run a command on a file system that is read-only everywhere but in the folder for temporary files."""
    temporary = shell.folder / "tmp"
    temporary.mkdir(exist_ok=True)
    mounts = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", str(temporary), str(temporary)]
    done = subprocess.run(
        ["bwrap", *mounts, sys.executable, "-m", "vaka", *words],
        cwd=shell.folder,
        env=without_coverage(shell.env) | {"TMPDIR": str(temporary)} | env,
        timeout=TIMEOUT,
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert list(temporary.iterdir()) == []
    return CommandResult(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def kept(shell: Shell) -> Shell:
    """A store with a session whose turn was killed."""
    if subprocess.run(["bwrap", "--ro-bind", "/", "/", "--proc", "/proc", "true"], check=False).returncode:
        pytest.fail("bubblewrap cannot make a read-only mount here")
    shell.write_script(say_line("Which pump?"), call_line("hang"), say_line("Done."))
    shell.run("My pump is broken.", "--session", "s")
    running = shell.start_run("The blue one.", "--session", "s")
    running.read_until("tool.started")
    running.send_signal(signal.SIGKILL)
    running.wait_result()
    return shell


def database_of(shell: Shell) -> Path:
    return shell.folder / "data" / "vaka" / "vaka.db"


def test_reads_work_on_a_read_only_mount_after_a_clean_end(kept: Shell) -> None:
    exported = kept.vaka("sessions", "export", "s").out  # ends with a checkpoint, which removes the log
    assert not database_of(kept).with_name("vaka.db-wal").exists()
    for words in READS:
        done = run_read_only(kept, *words)
        assert (done.code, done.err if "messages" not in words[:2] else "") == (0, ""), (words, done.err)
        if words == ("sessions", "export", "s"):
            assert done.out == exported
        if words == ("doctor",):
            assert "the database can be read here, but not written" in done.out


@pytest.mark.parametrize("pepper", ["", "0123456789abcdef"])
def test_keys_are_listed_where_the_store_can_only_be_read(kept: Shell, pepper: str) -> None:
    assert run_read_only(kept, "keys", "list", "--json", VAKA_SERVER_PEPPER=pepper).json == {"keys": []}
    kept.vaka("keys", "create", "--name", "ci", VAKA_SERVER_PEPPER=pepper)
    [key] = run_read_only(kept, "keys", "list", "--json", VAKA_SERVER_PEPPER=pepper).json["keys"]
    assert (key["name"], key["status"]) == ("ci", "active")
    [key] = run_read_only(kept, "keys", "list", "--json", VAKA_SERVER_PEPPER="another pepper, as long").json["keys"]
    assert key["status"] == "other pepper"


@pytest.mark.parametrize("shared_memory", [True, False])
def test_reads_miss_nothing_of_the_log_that_a_crash_has_left(kept: Shell, shared_memory: bool) -> None:
    path = database_of(kept)
    assert path.with_name("vaka.db-wal").stat().st_size
    if not shared_memory:  # as in a copy of the two files that hold data
        path.with_name("vaka.db-shm").unlink()
    found = run_read_only(kept, "sessions", "export", "s")
    assert (found.code, found.lines[-1]["type"]) == (0, "tool.started")
    assert found.out == kept.vaka("sessions", "export", "s").out


def test_a_log_that_cannot_be_copied_is_an_error_that_says_so(kept: Shell) -> None:
    database_of(kept).with_name("vaka.db-shm").unlink()
    found = run_read_only(kept, "sessions", "export", "s", TMPDIR="/nonexistent")
    assert (found.code, "cannot be opened for reading: " in found.err) == (3, True), found.err


def test_a_process_that_writes_is_alive_for_readers_of_a_read_only_mount(kept: Shell) -> None:
    os.mkfifo(kept.folder / "pipe")
    kept.write_script(call_line("gate", path="pipe"), say_line("Through."), name="gate.jsonl")
    running = kept.start_run("Wait.", "--session", "w", model="scripted:gate.jsonl")
    running.read_until("tool.started")
    shown = {row["id"]: row["live"] for row in run_read_only(kept, "sessions", "list", "--json").json["sessions"]}
    (kept.folder / "pipe").write_text("open")
    assert running.wait_result().code == 0
    assert shown == {"w": True, "s": False}


def test_a_write_says_that_the_store_can_only_be_read(kept: Shell) -> None:
    for words in (("sessions", "create", "--id", "t"), ("run", "Hi.", "--session", "new", "--model", "scripted:x")):
        done = run_read_only(kept, *words)
        assert done.code == 3
        assert "ead-only" in done.err or "not written" in done.err


def test_a_store_that_a_newer_version_would_migrate_says_where_to_open_it(kept: Shell) -> None:
    newer = NewerVaka(kept.folder / "newer")
    (newer.migrations("sqlite") / next_migration(1)).write_text("create table notes (text text not null);\n")
    kept.vaka("sessions", "list")
    done = run_read_only(kept, "sessions", "list", PYTHONPATH=str(kept.folder / "newer"))
    assert (done.code, "open it once where it can be" in done.err) == (3, True)


def test_a_store_of_an_earlier_schema_is_refused(kept: Shell) -> None:
    kept.vaka("sessions", "list")
    with sqlite3.connect(database_of(kept)) as connection:
        connection.execute("pragma user_version = 3")
    connection.close()
    done = run_read_only(kept, "sessions", "list")
    assert (done.code, "has schema 3, which a vaka before 0.1.0 wrote" in done.err) == (3, True)
