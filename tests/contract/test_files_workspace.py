"""The files contract for a workspace with several roots, in each of them."""

from pathlib import Path

import pytest

from vaka.core.ports.files import Files
from vaka.files.workspace import WorkspaceFiles
from vaka.testing.files import FolderContract


class TestWorkspace(FolderContract):
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "root"
        folder.mkdir()
        return folder

    @pytest.fixture
    def files(self, folder: Path, tmp_path: Path) -> Files:
        other = tmp_path / "other"
        other.mkdir()
        return WorkspaceFiles(folder, [other])
