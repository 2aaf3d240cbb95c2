"""Several trees as one keep every promise of a tree, in each of them."""

from pathlib import Path

import pytest

from vaka.core.ports.files import Files
from vaka.files.composite import CompositeFiles
from vaka.files.disk import DiskFiles
from vaka.files.memory import MemoryFiles
from vaka.testing.files import FilesContract, FolderContract


class TestDefault(FilesContract):
    """Beside a tree that hangs in a place of its own, away from what is looked at."""

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
