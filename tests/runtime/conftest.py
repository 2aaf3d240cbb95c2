from pathlib import Path

import pytest

from tests.runtime.approval_project import ApprovalProject


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ApprovalProject:
    made = ApprovalProject(tmp_path)
    monkeypatch.setenv("HOME", str(made.home))
    return made
