"""The files contract for files in memory."""

import pytest

from vaka.core.ports.files import Files
from vaka.files.memory import MemoryFiles
from vaka.testing.files import FilesContract


class TestMemory(FilesContract):
    @pytest.fixture
    def files(self) -> Files:
        return MemoryFiles()
