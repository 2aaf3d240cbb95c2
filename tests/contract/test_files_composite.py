"""The files contract for composite trees, in each of their parts."""

from pathlib import Path

import pytest

from vaka.core.ports.files import Files
from vaka.files.composite import CompositeFiles
from vaka.files.disk import DiskFiles
from vaka.files.memory import MemoryFiles
from vaka.testing.files import FilesContract, FolderContract


class TestDefault(FilesContract):
    """Beside another tree, mounted at a path that the tests do not use."""

    prefix = "main/"

    @pytest.fixture
    def files(self) -> Files:
        return CompositeFiles(MemoryFiles(), {"main": MemoryFiles(), "other/place": MemoryFiles()})


class TestDeep(FolderContract):
    prefix = "deep/er/"

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "root"
        folder.mkdir()
        return folder

    @pytest.fixture
    def files(self, folder: Path) -> Files:
        return CompositeFiles(MemoryFiles(), {"deep/er": DiskFiles(folder), "deep": MemoryFiles()})
