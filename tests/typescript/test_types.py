"""The TypeScript types of events and of the API are those of their schemas."""

import sys
from pathlib import Path

import pytest

from scripts import ts_types


@pytest.mark.parametrize("file", ts_types.FILES, ids=lambda file: file.name)
def test_the_committed_types_are_those_of_the_schema(file: Path) -> None:
    assert file.read_text("utf-8") == ts_types.FILES[file](), "run python -m scripts.ts_types"


def test_check_writes_nothing_and_fails_when_a_file_is_out_of_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = ts_types.ROOT / "ts" / "no-such-file.ts"
    monkeypatch.setattr(ts_types, "FILES", {file: ts_types.render_events})
    monkeypatch.setattr(sys, "argv", ["ts_types", "--check"])
    assert ts_types.main() == 1
    assert capsys.readouterr().out == "ts/no-such-file.ts is out of date\n"
    assert not file.exists()
