"""The files contract for a folder of this machine, with each opener."""

from pathlib import Path
from typing import Literal

import pytest

from vaka.core.ports.files import Files
from vaka.files.disk import DiskFiles
from vaka.files.safe_open import ProtectedFiles
from vaka.testing.files import FolderContract


class _OnDisk(FolderContract):
    way: Literal["openat2", "walk"]

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "root"
        folder.mkdir()
        return folder

    @pytest.fixture
    def files(self, folder: Path) -> Files:
        return DiskFiles(folder, opener=self.way)


class TestOpenat2(_OnDisk):
    way = "openat2"


class TestWalk(_OnDisk):
    way = "walk"


class TestGuarded(_OnDisk):
    """With a protected path, folders are opened one by one."""

    way = "openat2"

    @pytest.fixture
    def files(self, folder: Path) -> Files:
        return DiskFiles(folder, protected=ProtectedFiles(["kept/safe", "**/.git"]))
