"""A file that cannot be opened as a store is an error that names it, with the exit code of a wrong configuration."""

from pathlib import Path

import pytest

from vaka.core.types.errors import CannotOpen, Corrupt, NotADatabase, StoreError
from vaka.core.types.ids import SessionId
from vaka.stores.sqlite import SqliteStore


async def opening_error(path: Path) -> StoreError:
    store = SqliteStore(path)
    try:
        with pytest.raises(StoreError) as caught:
            await store.sessions.find(SessionId("s"))
    finally:
        await store.close()
    assert caught.value.exit_code == 3
    assert str(path) in str(caught.value)
    return caught.value


async def test_a_missing_folder_is_not_created(tmp_path: Path) -> None:
    error = await opening_error(tmp_path / "missing" / "folder" / "x.db")
    assert isinstance(error, CannotOpen)
    assert f"create it with: mkdir -p {tmp_path / 'missing' / 'folder'}" in str(error)
    assert not (tmp_path / "missing").exists()


async def test_a_folder_is_not_a_store(tmp_path: Path) -> None:
    error = await opening_error(tmp_path)
    assert isinstance(error, CannotOpen)
    assert "it is a folder" in str(error)


async def test_a_file_below_a_file_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    assert isinstance(await opening_error(tmp_path / "file" / "x.db"), CannotOpen)


async def test_another_file_is_not_a_database(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Buy milk.\n" * 1000)
    error = await opening_error(tmp_path / "notes.txt")
    assert isinstance(error, NotADatabase)
    assert isinstance(error, Corrupt)
    assert (tmp_path / "notes.txt").read_text() == "Buy milk.\n" * 1000
