import os
from pathlib import Path

import conformance
import pytest

FOLDER = os.environ.get("LUAU_CONFORMANCE")


@pytest.mark.skipif(FOLDER is None, reason="LUAU_CONFORMANCE names no folder with Luau's conformance files")
def test_the_conformance_files_of_luau_pass() -> None:
    assert conformance.main(Path(FOLDER or "")) == 0
