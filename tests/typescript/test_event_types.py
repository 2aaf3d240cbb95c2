"""The TypeScript types of events are those of the schema."""

import sys

import pytest

from scripts import ts_events


def test_the_committed_types_are_those_of_the_schema() -> None:
    assert ts_events.FILE.read_text("utf-8") == ts_events.render(), "run python -m scripts.ts_events"


def test_check_writes_nothing_and_fails_when_the_file_is_out_of_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = ts_events.ROOT / "ts" / "no-such-file.ts"
    monkeypatch.setattr(ts_events, "FILE", file)
    monkeypatch.setattr(sys, "argv", ["ts_events", "--check"])
    assert ts_events.main() == 1
    assert capsys.readouterr().out == "ts/no-such-file.ts is out of date\n"
    assert not file.exists()
