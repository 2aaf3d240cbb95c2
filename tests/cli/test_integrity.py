"""``vaka sessions verify`` and ``vaka doctor`` find damaged blobs and logs that were cut; the guide repairs them."""

import json
import os
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import Shell, say_line

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "integrity.md").read_text("utf-8")
_BLOCKS = re.compile(r"^```console\n(.*?)^```(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)

LARGE = "boat " * 10_000


def store_of(shell: Shell) -> Path:
    return shell.folder / "data/vaka/vaka.db"


def change_store(shell: Shell, *statements: str) -> int:
    """Change the database behind vaka's back; return the number of changed rows."""
    database = sqlite3.connect(store_of(shell))
    try:
        with database:
            return sum(database.execute(statement).rowcount for statement in statements)
    finally:
        database.close()


def damage_blob(shell: Shell) -> None:
    """Flip one byte of the large message."""
    changed = "update blobs set data = cast('c' || substr(data, 2) as blob) where substr(data, 1, 5) = x'626f617420'"
    assert change_store(shell, changed) == 1


@pytest.fixture
def talk(shell: Shell) -> Shell:
    """A shell with a session of two turns, of which the second has a blob, and a backup of the store."""
    shell.write_script(
        say_line("Hello."), say_line("We talked about boats."), say_line("Still boats.") | {"repeat": True}
    )
    shell.write_file("vaka.toml", 'model = "scripted:script.jsonl"\n')
    shell.run("Hello.", "--session", "demo")
    assert len(shell.events("demo")) == 8
    done = shell.vaka("run", "-", "--session", "demo", input=LARGE.encode())
    assert done.code == 0, done.err
    shutil.copy(store_of(shell), shell.folder / "backup.db")
    return shell


def run_examples(shell: Shell, block: str) -> None:
    """Run the commands of a block of the guide; each prints what the guide shows."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        done = shell.bash(f"({command}) 2>&1", fork=True)
        wanted = ".*".join(re.escape(piece) for piece in printed.split("…"))
        assert re.fullmatch(wanted, done.out, re.DOTALL), f"{command}\n{done.out}"


def test_the_guide_repairs_a_damaged_blob_and_anchors_the_logs(talk: Shell) -> None:
    intact, damaged, repaired, forked, anchored = _BLOCKS.findall(GUIDE)
    run_examples(talk, intact)
    damage_blob(talk)
    assert talk.vaka("run", "And now?", "--session", "demo").code == 1
    run_examples(talk, damaged)
    run_examples(talk, forked)
    run_examples(talk, repaired)
    assert talk.vaka("run", "And now?", "--session", "demo", "--quiet").out == "Still boats.\n"
    run_examples(talk, anchored)


def test_a_damaged_and_a_missing_blob_are_named_with_the_events_that_use_them(talk: Shell) -> None:
    used = next(event["seq"] for event in talk.events("demo") if "boat boat" in json.dumps(event))
    damage_blob(talk)
    done = talk.vaka("sessions", "verify", "demo", "--json")
    assert (done.code, done.json["ok"]) == (1, False)
    [problem] = done.json["blob_problems"]
    assert (problem["problem"], problem["events"], problem["uses"]) == ("damaged", [used], 1)
    assert change_store(talk, f"delete from blobs where digest = '{problem['digest']}'") == 1
    [missing] = talk.vaka("sessions", "verify", "demo", "--json").json["blob_problems"]
    assert missing == problem | {"problem": "missing"}
    checked = talk.vaka("doctor", "--reindex", "--json")
    assert checked.code == 1
    [found] = [check for check in checked.json["checks"] if check["name"] == "sessions"]
    assert (found["state"], problem["digest"] in found["detail"]) == ("fail", True)
    refused = talk.vaka("sessions", "verify", "demo", "--repair-from", "sqlite:///typo.db")
    assert (refused.code, (talk.folder / "typo.db").exists()) == (2, False)
    assert talk.vaka("sessions", "verify", "demo", "--repair-from", "sqlite:///backup.db", "--json").json["restored"]
    assert talk.vaka("doctor", "--reindex").code == 0


def test_a_rewind_to_before_a_damaged_blob_lets_a_session_run(talk: Shell) -> None:
    damage_blob(talk)
    assert talk.vaka("sessions", "rewind", "demo", "8").code == 0
    assert talk.vaka("run", "Again.", "--session", "demo", "--quiet").out == "We talked about boats.\n"
    assert talk.vaka("sessions", "verify", "demo").code == 1
    assert talk.vaka("sessions", "erase", "demo", "--yes").code == 0
    assert talk.vaka("sessions", "verify", "demo").code == 0


def anchors_of(shell: Shell) -> dict[str, Any]:
    lines = (shell.folder / "heads.jsonl").read_text("utf-8").splitlines()
    return {anchor["session"]: anchor for anchor in map(json.loads, lines)}


def verify_all(shell: Shell, *more: str) -> tuple[int, dict[str, Any]]:
    done = shell.vaka("sessions", "verify", "--all", "--anchor", "heads.jsonl", "--json", *more)
    return done.code, {line["session_id"]: line for line in done.lines}


def test_an_anchor_moves_forward_with_its_log(talk: Shell) -> None:
    code, checks = verify_all(talk)
    assert (code, checks["demo"]["anchor"]) == (0, {"state": "new"})
    first = anchors_of(talk)["demo"]
    assert (first["namespace"], first["epoch"], first["seq"], first["hash"]) == (
        "",
        1,
        checks["demo"]["head"],
        checks["demo"]["hash"],
    )
    talk.run("More.", "--session", "demo")
    talk.run("Hi.", "--session", "other")
    code, checks = verify_all(talk, "--check-only")
    assert (code, checks["demo"]["anchor"]["state"], anchors_of(talk)) == (0, "moved", {"demo": first})
    code, checks = verify_all(talk)
    assert (code, checks["demo"]["anchor"]["seq"], checks["demo"]["anchor"]["state"]) == (0, first["seq"], "moved")
    assert {name: anchor["seq"] for name, anchor in anchors_of(talk).items()} == {
        name: check["head"] for name, check in checks.items()
    }
    before = (talk.folder / "heads.jsonl").stat().st_ino
    assert verify_all(talk)[1]["demo"]["anchor"]["state"] == "kept"
    assert (talk.folder / "heads.jsonl").stat().st_ino == before, "a file without a change is not replaced"


def restore_backup(shell: Shell) -> None:
    """Put the backup in the place of the store."""
    for file in store_of(shell).parent.glob("vaka.db*"):
        if file.is_file():
            file.unlink()
    shutil.copy(shell.folder / "backup.db", store_of(shell))


def test_a_log_that_was_cut_or_rewritten_or_deleted_is_reported_and_keeps_its_anchor(talk: Shell) -> None:
    talk.run("More.", "--session", "demo")
    assert verify_all(talk)[0] == 0
    anchors = anchors_of(talk)
    restore_backup(talk)  # the chain of a log that was cut is whole
    assert talk.vaka("sessions", "verify", "demo").code == 0
    code, checks = verify_all(talk)
    assert (code, checks["demo"]["anchor"]["state"]) == (1, "truncated")
    assert "truncated: the log ends at" in checks["demo"]["error"]
    talk.run("Another.", "--session", "demo")
    code, checks = verify_all(talk)
    assert (code, checks["demo"]["anchor"]["state"]) == (1, "rewritten")
    talk.vaka("sessions", "fork", "demo@8", "--id", "copy")
    talk.vaka("sessions", "delete", "demo", "--yes")
    talk.vaka("sessions", "fork", "copy", "--id", "demo")
    assert verify_all(talk)[1]["demo"]["anchor"]["state"] == "truncated", "another log has the id"
    talk.vaka("sessions", "delete", "demo", "--yes")
    code, checks = verify_all(talk)
    assert (code, checks["demo"]["anchor"]["state"], checks["copy"]["ok"]) == (1, "missing", True)
    assert "remove its line from heads.jsonl" in checks["demo"]["error"]
    named = talk.vaka("sessions", "verify", "demo", "--anchor", "heads.jsonl")
    assert (named.code, "NOT OK: missing" in named.out) == (1, True)
    assert anchors_of(talk)["demo"] == anchors["demo"]


def test_a_log_of_another_epoch_is_reported_as_restored(talk: Shell) -> None:
    verify_all(talk)
    line = anchors_of(talk)["demo"] | {"epoch": 2}
    talk.write_file("heads.jsonl", json.dumps(line))
    code, checks = verify_all(talk)
    assert (code, checks["demo"]["anchor"]["state"]) == (1, "restored")


GOOD = {"session": "demo", "epoch": 1, "seq": 3, "hash": "a" * 64, "time": "2026-01-01T00:00:00.000Z"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1 is not an anchor"),
        ("\n[1]\n", "line 2 is not an anchor"),
        (json.dumps(GOOD | {"seq": -1}), "a seq of at least 1"),
        (json.dumps(GOOD | {"seq": 1e300}), "line 1 is not an anchor"),
        (json.dumps(GOOD | {"hash": "A" * 64}), "64 hexadecimal digits"),
        (json.dumps(GOOD | {"session": 7}), "line 1 is not an anchor"),
        (f"{json.dumps(GOOD)}\n{json.dumps(GOOD | {'seq': 4})}\n", "line 2: session 'demo' has two anchors"),
        ("[" * 100_000, "line 1 is not an anchor"),
        ("\udcff\udcfe", "line 1 is not an anchor"),
    ],
    ids=["json", "array", "seq", "large", "hash", "type", "twice", "deep", "bytes"],
)
def test_a_hostile_anchor_file_is_an_error_and_stays_as_it_is(shell: Shell, text: str, said: str) -> None:
    file = shell.folder / "heads.jsonl"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    done = shell.vaka("sessions", "verify", "--all", "--anchor", "heads.jsonl")
    assert (done.code, said in done.err, "Traceback" in done.err) == (2, True, False), done.err
    assert file.read_bytes() == text.encode("utf-8", "surrogateescape")


def test_an_anchor_that_is_no_file_is_refused(shell: Shell) -> None:
    os.mkfifo(shell.folder / "pipe")
    for name in (".", "pipe", "/dev/zero"):
        done = shell.vaka("sessions", "verify", "--all", "--anchor", name)
        assert (done.code, "is not a file" in done.err or "cannot be read" in done.err) == (2, True), done.err
    absent = shell.vaka("sessions", "verify", "--all", "--anchor", "absent.jsonl", "--check-only")
    assert (absent.code, "there is no anchor file" in absent.err) == (2, True)
    assert shell.vaka("sessions", "verify", "--all", "--check-only").code == 2
