import os
from pathlib import Path

import conformance
import pytest

FOLDER = os.environ.get("LUAU_CONFORMANCE")


@pytest.mark.skipif(FOLDER is None, reason="set LUAU_CONFORMANCE to the folder of Luau's conformance files")
def test_the_conformance_files_of_luau_pass() -> None:
    assert conformance.main(Path(FOLDER or "")) == 0
