"""``vaka sessions``: the logs from a shell."""

import hashlib
import json
import sqlite3

import pytest

from tests.cli.shell import Shell, call_line, say_line


@pytest.fixture
def kept(shell: Shell) -> Shell:
    """A store with two sessions."""
    shell.write_script(call_line("add", a=1, b=2), say_line("It is 3."), say_line("Bye."))
    shell.run("Add one and two.", "--session", "sums")
    shell.write_script(say_line("Hello."), name="hello.jsonl")
    shell.vaka("run", "Greet me.", "--session", "greeting", "--model", "scripted:hello.jsonl")
    return shell


def test_sessions_are_listed_newest_first(kept: Shell) -> None:
    done = kept.vaka("sessions", "list")
    assert [line.split()[:2] for line in done.out.splitlines()] == [
        ["ID", "STATUS"],
        ["greeting", "idle"],
        ["sums", "idle"],
    ]
    rows = kept.vaka("sessions", "list", "--json").json
    assert [(row["id"], row["title"], row["agent"]) for row in rows["sessions"]] == [
        ("greeting", "Greet me.", "assistant"),
        ("sums", "Add one and two.", "payer"),
    ]
    assert rows["next"] is None


def test_lists_are_filtered_and_paged(kept: Shell) -> None:
    def ids(*words: str) -> list[str]:
        return [row["id"] for row in kept.vaka("sessions", "list", "--json", *words).json["sessions"]]

    assert ids("--agent", "payer") == ["sums"]
    assert ids("--text", "GREET") == ["greeting"]
    assert ids("--status", "running") == []
    first = kept.vaka("sessions", "list", "--json", "--limit", "1").json
    assert ids("--limit", "1", "--after", first["next"]) == ["sums"]
    assert "more: vaka sessions list --after " in kept.vaka("sessions", "list", "--limit", "1").err
    assert kept.vaka("sessions", "list", "--after", "junk").code == 2


def test_a_session_is_shown_as_a_conversation(kept: Shell) -> None:
    assert kept.vaka("sessions", "show", "sums").out == (
        'User: Add one and two.\n  → add {"a":1,"b":2}\n  ← add: 3\nAgent: It is 3.\n'
    )
    events = kept.vaka("sessions", "show", "sums", "--events").out.splitlines()
    assert [line.split()[3] for line in events] == kept.event_types("sums")
    assert kept.vaka("sessions", "show", "sums", "--events", "--after", "14").out.count("\n") == 1
    assert kept.vaka("sessions", "show", "sums", "--json").raw_out == kept.vaka("sessions", "export", "sums").raw_out


def test_failures_are_part_of_the_conversation(shell: Shell) -> None:
    shell.write_script(
        call_line("boom"), {"error": {"status": 400, "message": "no"}}, call_line("hang"), say_line("never")
    )
    shell.run("One.", "--session", "s")
    shell.run("Two.", "--session", "s", "--timeout", "0.2")
    shown = shell.vaka("sessions", "show", "s").out
    assert "✗ boom: " in shown
    assert "failed (model_refused)" in shown
    assert "limit reached: time" in shown
    forked = shell.vaka("sessions", "fork", "s@5").out.strip()
    assert "forked from s@1.5" in shell.vaka("sessions", "show", forked).out
    shell.vaka("sessions", "rewind", "s", "1")
    assert "rewound to event 1" in shell.vaka("sessions", "show", "s").out


def test_a_session_can_be_followed_from_another_process(shell: Shell) -> None:
    shell.write_script(say_line("First."), say_line("Second."))
    shell.run("One.", "--session", "s")
    screen = shell.terminal("sessions", "show", "s", "--follow")
    screen.expect("Agent: First.")
    shell.run("Two.", "--session", "s")
    screen.expect("Agent: Second.")
    screen.process.send_signal(2)
    assert screen.wait_exit() == 130


def test_an_export_is_the_stored_bytes(kept: Shell) -> None:
    lines = kept.vaka("sessions", "export", "sums").raw_out.splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["prev"] for event in events[1:]] == [hashlib.sha256(line).hexdigest() for line in lines[:-1]]
    assert kept.vaka("sessions", "export", "sums", "--format", "json").json == events
    markdown = kept.vaka("sessions", "export", "sums", "--format", "md").out
    assert markdown.startswith("## User\n\nAdd one and two.\n")
    assert "## Agent\n\nIt is 3.\n" in markdown


@pytest.mark.parametrize("command", ["show", "export", "verify", "delete", "fork", "rewind"])
def test_an_unknown_session_is_2(kept: Shell, command: str) -> None:
    more = {"delete": ["--yes"], "rewind": ["1"]}.get(command, [])
    done = kept.vaka("sessions", command, "missing", *more)
    assert (done.code, done.out) == (2, "")
    assert "there is no session 'missing'" in done.err


def test_a_fork_does_not_change_its_origin(kept: Shell) -> None:
    assert kept.vaka("sessions", "fork", "sums", "--id", "copy").out == "copy\n"
    assert kept.vaka("sessions", "fork", "sums@3", "--json").json["session_id"].startswith("ses_fork")
    assert kept.vaka("sessions", "fork", "sums", "--id", "copy").code == 2
    assert kept.vaka("sessions", "fork", "sums@99").code == 2
    done = kept.run("Bye.", "--fork", "sums@15", "--session", "other", "--output", "json")
    assert (done.json["text"], done.json["session_id"]) == ("Bye.", "other")
    assert kept.events("other")[:15] == kept.events("sums")
    assert kept.run("--fork", "sums").code == 2


def test_an_id_may_hold_an_at_sign(kept: Shell) -> None:
    kept.vaka("sessions", "fork", "sums", "--id", "kim@home")
    assert kept.vaka("sessions", "fork", "kim@home", "--id", "a").code == 0
    assert kept.vaka("sessions", "fork", "kim@home@3", "--id", "b").code == 0
    assert len(kept.events("b")) < len(kept.events("a"))


def test_a_rewound_session_continues_from_there(shell: Shell) -> None:
    shell.write_script(say_line("First."), say_line("Second."))
    shell.run("One.", "--session", "s")
    head = str(len(shell.events("s")))
    shell.run("Two.", "--session", "s")
    done = shell.vaka("sessions", "rewind", "s", head)
    assert (done.code, done.err) == (0, f"s continues from {head}; recorded as event 1.{len(shell.events('s'))}\n")
    assert shell.run("Two again.", "--session", "s").out == "Second.\n"
    assert shell.vaka("sessions", "rewind", "s", "no-such-label").code == 2


def test_an_intact_log_is_verified_and_its_head_printed(kept: Shell) -> None:
    raw = kept.vaka("sessions", "export", "sums").raw_out.splitlines()
    head, old = hashlib.sha256(raw[-1]).hexdigest(), hashlib.sha256(raw[4]).hexdigest()
    assert kept.vaka("sessions", "verify", "sums").out == f"sums  15  {head}  ok\n"
    assert kept.vaka("sessions", "verify", "sums", "--expect", head).code == 0
    assert kept.vaka("sessions", "verify", "sums", "--expect", old, "--json").json["expected_at"] == 5
    assert kept.vaka("sessions", "verify", "--all").out.count(" ok\n") == 2
    wrong = kept.vaka("sessions", "verify", "sums", "--expect", "0" * 64)
    assert (wrong.code, "NOT OK: no event has the hash 000" in wrong.out) == (1, True)
    assert kept.vaka("sessions", "verify").code == 2
    assert kept.vaka("sessions", "verify", "--all", "--expect", head).code == 2


def test_a_changed_byte_is_found(kept: Shell) -> None:
    database = sqlite3.connect(kept.folder / "data/vaka/vaka.db")
    changed = "update events set body = cast(replace(body, 'It is 3.', 'It is 4.') as blob) where session = 'sums'"
    with database:
        assert database.execute(changed).rowcount
    database.close()
    done = kept.vaka("sessions", "verify", "--all", "--json")
    assert done.code == 1
    assert {line["session_id"]: line["ok"] for line in done.lines} == {"greeting": True, "sums": False}
    assert kept.vaka("sessions", "show", "sums").code == 1


def test_old_sessions_and_expired_values_are_collected(kept: Shell) -> None:
    database = sqlite3.connect(kept.folder / "data/vaka/vaka.db")
    with database:
        insert = "insert into pairs (namespace, key, checksum, value, expires) values ('', ?, 0, x'31', ?)"
        database.executemany(insert, [("old", "2020-01-01T00:00:00.000Z"), ("new", "9999-01-01T00:00:00.000Z")])
    database.close()
    dry = kept.vaka("sessions", "gc", "--older-than", "0s", "--dry-run")
    assert (dry.out.split(), "would remove 2 sessions" in dry.err) == (["greeting", "sums"], True)
    assert kept.vaka("sessions", "gc", "--older-than", "30d", "--dry-run", "--json").json["values"] == 1
    collected = {"dry_run": False, "sessions": [], "blobs": 0, "values": 1, "bytes": 1, "folders": 0}
    assert kept.vaka("sessions", "gc", "--json").json == collected
    assert "removed 2 sessions" in kept.vaka("sessions", "gc", "--older-than", "0s").err
    assert kept.vaka("sessions", "list", "--json").json["sessions"] == []


def test_deleting_without_a_terminal_needs_yes(kept: Shell) -> None:
    assert kept.vaka("sessions", "delete", "sums").code == 2
    transcript = kept.write_file("data/vaka/transcripts/sums.jsonl", "{}")
    assert kept.vaka("sessions", "delete", "sums", "--yes").err == "deleted sums\n"
    assert not transcript.exists()
    assert kept.vaka("sessions", "show", "sums").code == 2


def test_a_long_list_into_a_closed_pipe_is_quiet(kept: Shell) -> None:
    done = kept.bash("python -m vaka sessions list | head -1")
    assert (done.code, done.err) == (0, "")
