"""A restore brings files back and does not overwrite changes by others."""

from pathlib import Path

import msgspec
import pytest

from vaka.core.ports.files import Files
from vaka.core.ports.values import BlobStore
from vaka.core.types.errors import FileChanged, FileError, FileMissing, InvalidInput, NotFound
from vaka.core.types.ids import JSON
from vaka.files.memory import MemoryFiles
from vaka.files.snapshots import NO_FILE, FileSnapshots
from vaka.files.workspace import WorkspaceFiles
from vaka.stores.memory import MemoryStore
from vaka.testing.files import sha256_digest


@pytest.fixture
def blobs() -> BlobStore:
    return MemoryStore().blobs


@pytest.fixture(params=["memory", "workspace"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return MemoryFiles() if request.param == "memory" else WorkspaceFiles(tmp_path)


async def write_with_snapshot(files: Files, snapshots: FileSnapshots, path: str, data: bytes) -> JSON:
    """Write as a tool does: the token is stored before the change."""
    token = await snapshots.back_up(path, becomes=sha256_digest(data))
    await files.write(path, data)
    return msgspec.json.decode(msgspec.json.encode(token))


async def test_files_are_restored_to_before_the_first_change(files: Files, blobs: BlobStore) -> None:
    snapshots = FileSnapshots(files, blobs)
    await files.write("old", b"one")
    await files.write("doomed", b"kept")
    tokens = [
        await write_with_snapshot(files, snapshots, "old", b"two"),
        await write_with_snapshot(files, snapshots, "new/file", b"1"),
        await write_with_snapshot(files, snapshots, "./old", b"three"),
        await write_with_snapshot(files, snapshots, "new/../new/file", b"2"),
        await snapshots.back_up("doomed", becomes=NO_FILE),
    ]
    await files.delete("doomed")
    assert await snapshots.restore(tokens) == ["old", "new/file", "doomed"]
    assert [(await files.read(path)).data for path in ("old", "doomed")] == [b"one", b"kept"]
    with pytest.raises(FileMissing):
        await files.read("new/file")
    assert await snapshots.restore(tokens) == []


async def test_a_file_that_cannot_be_restored_is_named_after_all_others_are(tmp_path: Path, blobs: BlobStore) -> None:
    (tmp_path / "work").mkdir()
    files = WorkspaceFiles(tmp_path / "work")
    snapshots = FileSnapshots(files, blobs)
    for path in ("sub/old", "z.txt"):
        await files.write(path, b"one")
    tokens = [await snapshots.back_up(path, becomes=NO_FILE) for path in ("sub/old", "z.txt")]
    for path in ("sub/old", "sub", "z.txt"):
        await files.delete(path)
    (tmp_path / "work/sub").symlink_to(tmp_path)
    with pytest.raises(FileError, match=r"^'sub' goes through the link 'sub'"):
        await snapshots.restore(tokens)
    assert (await files.read("z.txt")).data == b"one"


async def test_only_the_last_changes_can_be_restored(files: Files, blobs: BlobStore) -> None:
    snapshots = FileSnapshots(files, blobs)
    tokens = [await write_with_snapshot(files, snapshots, "file", b"%d" % number) for number in range(4)]
    await snapshots.restore(tokens[2:])
    assert (await files.read("file")).data == b"1"
    await snapshots.restore(tokens[:2])
    with pytest.raises(FileMissing):
        await files.read("file")


async def test_changes_by_others_are_not_overwritten_unless_forced(files: Files, blobs: BlobStore) -> None:
    snapshots = FileSnapshots(files, blobs)
    await files.write("mine", b"1")
    await files.write("theirs", b"1")
    tokens = [
        await write_with_snapshot(files, snapshots, "mine", b"2"),
        await write_with_snapshot(files, snapshots, "theirs", b"2"),
    ]
    await files.write("theirs", b"a person was here")
    with pytest.raises(FileChanged, match="'theirs'"):
        await snapshots.restore(tokens)
    assert (await files.read("mine")).data == b"2"
    assert await snapshots.restore(tokens, force=True) == ["mine", "theirs"]
    assert [(await files.read(path)).data for path in ("mine", "theirs")] == [b"1", b"1"]


async def test_a_change_of_unknown_content_is_completed_by_after(files: Files, blobs: BlobStore) -> None:
    snapshots = FileSnapshots(files, blobs)
    await files.write("file", b"1")
    token = await snapshots.back_up("file")
    await files.write("file", b"2")
    with pytest.raises(FileChanged):
        await snapshots.restore([token])
    assert await snapshots.restore([await snapshots.after(token)]) == ["file"]
    assert (await files.read("file")).data == b"1"


async def test_a_file_too_large_to_copy_is_reported_as_lost(files: Files, blobs: BlobStore) -> None:
    snapshots = FileSnapshots(files, blobs, max_bytes=10)
    await files.write("small", b"1")
    await files.write("large", b"x" * 11)
    tokens = [
        await write_with_snapshot(files, snapshots, "small", b"2"),
        await write_with_snapshot(files, snapshots, "large", b"y"),
    ]
    with pytest.raises(FileError, match="'large' was too large"):
        await snapshots.restore(tokens)
    assert (await files.read("small")).data == b"2"


async def test_a_missing_copy_stops_the_restore(files: Files, blobs: BlobStore) -> None:
    snapshots = FileSnapshots(files, blobs)
    lost = {"path": "b", "root": files.root, "was": "0" * 64, "becomes": NO_FILE}
    tokens = [await write_with_snapshot(files, snapshots, "a", b"2"), lost]
    with pytest.raises(NotFound):
        await snapshots.restore(tokens)
    assert (await files.read("a")).data == b"2"


async def test_names_that_are_not_utf_8_fit_in_a_token(files: Files, blobs: BlobStore) -> None:
    snapshots = FileSnapshots(files, blobs)
    await files.write("caf\udce9", b"1")
    token = await write_with_snapshot(files, snapshots, "caf\udce9", b"2")
    assert await snapshots.restore([token]) == ["caf\udce9"]
    assert (await files.read("caf\udce9")).data == b"1"


async def test_a_large_file_is_compared_in_chunks(files: Files, blobs: BlobStore) -> None:
    snapshots, large = FileSnapshots(files, blobs), b"x" * (9 * 1024**2)
    await files.write("large", b"1")
    token = await write_with_snapshot(files, snapshots, "large", large)
    assert await snapshots.restore([token]) == ["large"]


@pytest.mark.parametrize(
    "token",
    [
        None,
        {},
        {"path": "a"},
        {"path": "a", "was": 1},
        {"raw": "!", "was": "gone"},
        {"path": "a", "was": "gone", "more": 1},
    ],
)
async def test_an_invalid_token_is_refused(files: Files, blobs: BlobStore, token: JSON) -> None:
    with pytest.raises(InvalidInput, match="not a valid snapshot token"):
        await FileSnapshots(files, blobs).restore([token])
