from pathlib import Path

import pytest

from tests.runtime.office import Office


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Office:
    made = Office(tmp_path)
    monkeypatch.setenv("HOME", str(made.home))
    return made
