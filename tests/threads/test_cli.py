"""``vaka sessions`` for messages: create, add, list, search, change, export, import, erase."""

import json
import re
from typing import Any

import pytest

from tests.cli.shell import CommandResult, Shell, say_line

LINES = [
    {
        "type": "thread",
        "id": "pumps",
        "title": "Pumpen",
        "agent_id": "helper",
        "resource_id": "kim",
        "metadata": {"n": 1},
    },
    {
        "type": "message",
        "role": "user",
        "id": "u1",
        "content": [{"type": "text", "text": "Die Pumpe ist kaputt."}],
        "metadata": {"channel": "mail"},
        "ts": "2026-01-31T12:00:00.000Z",
    },
    {
        "type": "message",
        "role": "assistant",
        "id": "a1",
        "ts": "2026-01-31T12:00:05.000Z",
        "content": [{"type": "text", "text": "Viele Grüße,\n会议取消了。"}],
    },
]


@pytest.fixture
def kept(shell: Shell) -> Shell:
    """A store with a session that was imported, and one that was run."""
    shell.write_file("pumps.jsonl", "".join(json.dumps(line) + "\n" for line in LINES))
    assert shell.vaka("sessions", "import", "pumps.jsonl").out == "pumps\n"
    shell.write_script(say_line("Hello \x1b[31mthere."), name="hello.jsonl")
    shell.vaka("run", "Greet me.", "--session", "greeting", "--model", "scripted:hello.jsonl")
    return shell


def test_sessions_are_listed_by_owner_state_and_metadata_and_their_messages_shown(kept: Shell) -> None:
    def ids(*words: str) -> list[str]:
        return [row["id"] for row in kept.vaka("sessions", "list", "--all", "--json", *words).json["sessions"]]

    assert ids() == ["greeting", "pumps"]
    assert ids("--owner", "kim", "--state", "active", "--metadata", "n=1") == ["pumps"]
    assert ids("--metadata", "n=2") == ids("--state", "paused") == ids("--agent", "other") == []
    first = kept.vaka("sessions", "list", "--all", "--json", "--limit", "1").json
    assert ids("--limit", "1", "--after", first["next"]) == ["pumps"]
    table = kept.vaka("sessions", "list", "--all", "--limit", "1")
    assert table.out.splitlines()[1].split()[:2] == ["greeting", "idle"]
    assert "more: vaka sessions list --all --after " in table.err
    shown = kept.vaka("sessions", "messages", "pumps", "--owner", "kim", "--newest", "--limit", "1")
    assert shown.out.endswith("assistant: Viele Grüße,\n会议取消了。\n")
    assert "2 messages, 1 of the user" in shown.err
    assert "more: --after " in shown.err
    document = kept.vaka("sessions", "messages", "pumps", "--role", "user", "--keyword", "PUMPE", "--json").json
    assert [message["id"] for message in document["messages"]] == ["u1"]
    assert (document["stats"]["message_count"], document["stats"]["average_response_seconds"]) == (2, 5.0)
    assert kept.vaka("sessions", "messages", "pumps", "--metadata", "channel=fax", "--json").json["messages"] == []
    assert "\x1b" not in kept.vaka("sessions", "messages", "greeting").out
    for words in (("messages", "missing"), ("messages", "pumps", "--owner", "lee"), ("list", "--metadata", "n")):
        assert kept.vaka("sessions", *words).code == 2


def test_what_was_said_is_found_in_every_session(kept: Shell) -> None:
    def found(*words: str) -> list[tuple[str, str]]:
        hits = kept.vaka("sessions", "search", "--json", *words).json["hits"]
        return [(hit["message"]["session"], hit["message"]["role"]) for hit in hits]

    assert found("pumpe") == [("pumps", "user")]
    assert found("取消") == found("GRUSSE", "--owner", "kim") == [("pumps", "assistant")]
    assert found("greet", "--role", "user") == [("greeting", "user")]
    assert found("grusse", "--owner", "lee") == found("--", "kaputt", "-pumpe") == []
    lines = kept.vaka("sessions", "search", "viele gr*", "--session", "pumps").out.splitlines()
    assert [line.split("  ", 1)[1] for line in lines] == ["assistant: Viele Grüße, 会议取消了。"]
    unknown = kept.vaka("sessions", "search", "pumpe", "--session", "pump")
    assert (unknown.code, "`vaka sessions list --all` shows the sessions of this store" in unknown.err) == (2, True)
    for text in ("-pumpe", "", "()"):
        refused = kept.vaka("sessions", "search", "--", text)
        assert (refused.code, "no word that must occur" in refused.err) == (2, True)
    nothing = kept.vaka("sessions", "search", '"unclosed (AND')
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "nothing was found\n")


def test_messages_are_exported_and_imported_as_another_session(kept: Shell) -> None:
    kept.write_file("copy.jsonl", export_messages(kept, "pumps").out)
    made = kept.vaka("sessions", "import", "copy.jsonl", "--id", "copy", "--owner", "lee", "--json").json
    assert (made["id"], made["owner"], made["title"]) == ("copy", "lee", "Pumpen")
    again = kept.bash("vaka sessions import - --id copy --owner lee < copy.jsonl", fork=True)
    assert (again.code, again.out) == (0, "copy\n")
    exported, copied = (export_messages(kept, id).lines for id in ("pumps", "copy"))
    assert [without_turn(line) for line in exported[1:]] == [without_turn(line) for line in copied[1:]]
    kept.write_file("broken.jsonl", '{"type":"thread","id":"x"}\n{"type":"message"}\n')
    broken = kept.vaka("sessions", "import", "broken.jsonl")
    assert (broken.code, "line 2 is not a line of exported messages" in broken.err) == (2, True)
    kept.write_file("events.jsonl", kept.vaka("sessions", "export", "pumps").out)
    events = kept.vaka("sessions", "import", "events.jsonl", "--id", "events")
    assert (events.code, "`vaka sessions export ID --format messages` writes such lines" in events.err) == (2, True)
    other = kept.vaka("sessions", "import", "copy.jsonl", "--id", "copy", "--owner", "kim")
    assert (other.code, "exists and belongs to another owner; import under another id" in other.err) == (2, True)
    kept.write_file("text.jsonl", '{"type":"thread","id":"y"}\n{"type":"message","role":"user","content":"Plain."}\n')
    assert kept.vaka("sessions", "import", "text.jsonl").out == "y\n"
    assert export_messages(kept, "y").lines[1]["content"] == [{"type": "text", "text": "Plain."}]


def test_an_export_of_another_owner_is_not_found(kept: Shell) -> None:
    for format in ("jsonl", "md", "messages"):
        refused = kept.vaka("sessions", "export", "pumps", "--format", format, "--owner", "lee")
        assert (refused.code, "there is no session 'pumps' of owner 'lee'" in refused.err) == (2, True)
        assert kept.vaka("sessions", "export", "pumps", "--format", format, "--owner", "kim").code == 0
    log = kept.vaka("sessions", "export", "pumps").out
    kept.write_file("log.jsonl", log)
    assert kept.vaka("sessions", "import", "log.jsonl").code == 2


def export_messages(shell: Shell, id: str, *more: str) -> CommandResult:
    return shell.vaka("sessions", "export", id, "--format", "messages", *more)


def without_turn(line: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in line.items() if name != "turn"}


def test_a_session_and_everything_of_an_owner_are_erased_and_still_verified(kept: Shell) -> None:
    head = kept.vaka("sessions", "verify", "greeting", "--json").json["hash"]
    for words in ((), ("greeting", "--owner", "kim"), ("greeting",)):
        refused = kept.vaka("sessions", "erase", *words)
        assert (refused.code, refused.out) == (2, "")
    assert kept.vaka("sessions", "erase", "none", "--yes").code == 2
    dry = kept.vaka("sessions", "erase", "--owner", "kim", "--dry-run")
    assert (dry.out, "would erase 1 session, at most " in dry.err) == ("pumps\n", True)
    done = kept.vaka("sessions", "erase", "--owner", "kim", "--yes")
    assert (done.code, done.out) == (0, "pumps\n")
    assert re.search(r"erased 1 session, \d+ events, 0 blobs\n", done.err)
    assert kept.vaka("sessions", "list", "--owner", "kim", "--json").json["sessions"] == []
    assert kept.vaka("sessions", "search", "Pumpe").out == ""
    report = kept.vaka("sessions", "erase", "greeting", "--yes", "--json").json
    assert (report["sessions"], report["overwritten"]) == (["greeting"], True)
    assert kept.vaka("sessions", "erase", "greeting", "--yes").out == ""

    check = kept.vaka("sessions", "verify", "greeting", "--expect", head)
    assert (check.code, f"{report['events']} events erased)" in check.out) == (0, True)
    assert kept.vaka("sessions", "list", "--all", "--json").json["sessions"][0]["erased"] > 0
    assert kept.vaka("sessions", "list", "--all").out.count("  erased ") == 2
    assert kept.vaka("sessions", "list", "--json").json["sessions"] == []
    last = kept.vaka("run", "Again.", "--last", "--all", "--model", "scripted:hello.jsonl")
    assert (last.code, "there is no session yet" in last.err) == (2, True)
    assert kept.vaka("sessions", "show", "greeting").out.splitlines()[-1] == f"  {report['events']} events were erased"
    exported = kept.vaka("sessions", "export", "greeting").out
    assert "Hello" not in exported
    refused = kept.vaka("run", "Again.", "--session", "greeting", "--model", "scripted:hello.jsonl")
    assert (refused.code, "was erased" in refused.err) == (2, True)
    assert kept.vaka("sessions", "delete", "greeting", "--yes").code == 0


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_sessions_and_messages_are_created_changed_and_deleted(
    shell: Shell, kind: str, request: pytest.FixtureRequest
) -> None:
    store = ("--store", request.getfixturevalue("postgres_dsn")) if kind == "postgres" else ()

    def sessions(*words: str, **more: Any) -> CommandResult:
        return shell.vaka("sessions", *words, *store, **more)

    assert sessions("create", "--id", "t", "--title", "Pumps", "--owner", "kim", "--metadata", "n=1").out == "t\n"
    assert sessions("create", "--id", "t").code == 2
    assert sessions("add", "t", "My pump is broken.", "--id", "m1", "--metadata", "channel=mail").out == "m1\n"
    assert sessions("add", "t", "Again.", "--id", "m1", "--json").json == {"id": "m1", "added": False}
    assert sessions("add", "t", "--role", "assistant", "--id", "m2", input=b"Which one?\n").out == "m2\n"
    changed = sessions("update", "t", "--title", "Valves", "--metadata", "n=null", "--state", "paused", "--json").json
    assert (changed["title"], changed["metadata"], changed["state"]) == ("Valves", {}, "paused")
    assert sessions("update", "t", "--title", "x", "--version", "1").code == 75
    assert sessions("update", "t", "--state", "archived").code == 2
    version = str(changed["version"])
    ended = sessions("update", "t", "--title", "Z", "--state", "ended", "--version", version, "--json").json
    assert (ended["title"], ended["state"]) == ("Z", "ended")
    assert sessions("update", "t").code == 2
    assert sessions("add", "t", "late").code == 2
    assert sessions("delete", "t", "--message", "m1").code == 2
    gone = sessions("delete", "t", "--message", "m1", "--message", "none", "--yes")
    assert (gone.code, gone.err) == (1, "deleted 1 message of t\nthere is no message 'none'\n")
    assert [each["id"] for each in sessions("messages", "t", "--json").json["messages"]] == ["m2"]
    assert sessions("delete", "t", "--owner", "lee", "--yes").code == 2
    assert sessions("delete", "t", "--yes").err == "deleted t\n"
    assert sessions("messages", "t").code == 2


def test_a_session_is_created_with_limits_that_are_applied(shell: Shell) -> None:
    limits = ("--max-messages", "5", "--max-duration", "12h", "--idle-timeout", "30m", "--auto-archive")
    made = shell.vaka("sessions", "create", "--id", "desk", *limits, "--json").json
    policy = {"max_messages": 5, "max_duration": 43200.0, "idle_timeout": 1800.0, "auto_archive": True}
    assert made["metadata"]["thread.policy"] == policy
    assert shell.vaka("sessions", "create", "--id", "plain", "--json").json["metadata"] == {}
    assert shell.vaka("sessions", "apply-limits").out == "0\n"
    only = shell.vaka("sessions", "create", "--id", "full", "--max-messages", "0", "--auto-archive", "--json").json
    unlimited = {"max_messages": 0, "max_duration": None, "idle_timeout": None, "auto_archive": True}
    assert only["metadata"]["thread.policy"] == unlimited
    assert shell.vaka("sessions", "apply-limits", "--json").json == {"changed": 2}
    assert shell.vaka("sessions", "apply-limits").out == "0\n"
    states = {row["id"]: row["state"] for row in shell.vaka("sessions", "list", "--json").json["sessions"]}
    assert states == {"desk": "active", "plain": "active", "full": "archived"}
    for words in (("--auto-archive",), ("--auto-archive", "--idle-timeout", "5m"), ("--max-messages", "-1")):
        assert shell.vaka("sessions", "create", *words).code == 2


def test_the_commands_work_on_postgresql(shell: Shell, postgres_dsn: str) -> None:
    def sessions(*words: str) -> Any:
        return shell.vaka("sessions", *words, "--store", postgres_dsn)

    assert sessions("create", "--id", "t", "--title", "Pumps").out == "t\n"
    assert sessions("add", "t", "水泵 Wasserpumpe ポンプ", "--id", "m1").out == "m1\n"
    assert sessions("add", "t", "zwei", "--role", "assistant").code == 0
    assert [row["id"] for row in sessions("list", "--json").json["sessions"]] == ["t"]
    for query in ("水泵", "ポンプ", "wasser*"):
        assert "Wasserpumpe" in sessions("search", query).out
    exported = shell.folder / "t.jsonl"
    exported.write_text(sessions("export", "t", "--format", "messages").out)
    assert sessions("import", str(exported), "--id", "u").out == "u\n"
    assert sessions("delete", "t", "--message", "m1", "--yes").code == 0
    assert "Wasserpumpe" not in sessions("messages", "t").out
    assert sessions("erase", "u", "--yes").code == 0
    assert shell.vaka("sessions", "verify", "u", "--store", postgres_dsn).code == 0
