"""Folders of this machine: protected paths, strict mode and errors of the system."""

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from vaka.core.types.errors import FileError, FileMissing, FileRefused
from vaka.files.disk import DiskFiles
from vaka.files.paths import translate_os_errors
from vaka.files.safe_open import OpenerName, ProtectedFiles
from vaka.testing.files import sha256_digest

OPENERS: tuple[OpenerName, ...] = ("openat2", "walk")
PROTECTED = ("**/.git", ".claude/settings.json", "vaka.toml", "kept/deep")


@pytest.fixture(params=OPENERS)
def way(request: pytest.FixtureRequest) -> OpenerName:
    chosen: OpenerName = request.param
    return chosen


async def assert_refused(files: DiskFiles, *paths: str) -> None:
    for path in paths:
        with pytest.raises(FileRefused, match="protected"):
            await files.write(path, b"changed")


def list_open_in(folder: Path) -> list[str]:
    """Return the paths below a folder that this process has open."""
    links = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sorted(name for name in links if str(folder) in name)


async def test_protected_paths_are_not_written_also_before_they_exist(tmp_path: Path, way: OpenerName) -> None:
    files = DiskFiles(tmp_path, protected=PROTECTED, opener=way)
    await assert_refused(
        files, ".git", ".git/config", ".git/hooks/pre-commit", "sub/.git/config", ".claude/settings.json"
    )
    await assert_refused(files, "vaka.toml", "kept/deep", "kept/deep/er/x", "x/../.git/config", "./vaka.toml")
    assert list(tmp_path.iterdir()) == []
    await files.write(".claude/other.json", b"x")
    await files.write("sub/vaka.toml", b"x")
    await files.write("kept/deeper", b"x")
    await files.write(".gitignore", b"x")


async def test_protected_paths_are_read_and_not_deleted(tmp_path: Path, way: OpenerName) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "vaka.toml").write_text("mine")
    files = DiskFiles(tmp_path, protected=PROTECTED, opener=way)
    assert (await files.read("vaka.toml")).data == b"mine"
    for path in ("vaka.toml", ".git"):
        with pytest.raises(FileRefused, match="protected"):
            await files.delete(path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".git", "vaka.toml"]


LOOKALIKES = [
    ".GIT/config",
    ".Git/config",
    ".g\u200cit/config",
    ".git./config",
    ".git /config",
    "sub/.gIT/x",
    "VAKA.TOML",
    "vaka.toml.",
    "\uff56aka.toml",
    "va\u212aa.toml",
    "vaka.tom\u2113",
    "Kept/DEEP/x",
]


@pytest.mark.parametrize("path", LOOKALIKES, ids=ascii)
async def test_names_that_a_file_system_confuses_with_protected_ones_are_protected(tmp_path: Path, path: str) -> None:
    await assert_refused(DiskFiles(tmp_path, protected=PROTECTED), path)


async def test_a_hard_link_to_a_protected_file_is_protected(tmp_path: Path, way: OpenerName) -> None:
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / "sub" / ".git").mkdir(parents=True)
    for path in (".git/config", ".git/hooks/x", "sub/.git/config", "vaka.toml", "free"):
        (tmp_path / path).write_text("mine")
    for number, path in enumerate((".git/config", ".git/hooks/x", "sub/.git/config", "vaka.toml")):
        os.link(tmp_path / path, tmp_path / f"innocent{number}")
    os.link(tmp_path / "free", tmp_path / "other")
    files = DiskFiles(tmp_path, protected=PROTECTED, opener=way)
    for number in range(4):
        with pytest.raises(FileRefused, match=r"same file as .* protected"):
            await files.write(f"innocent{number}", b"changed")
        with pytest.raises(FileRefused, match=r"same file as .* protected"):
            await files.delete(f"innocent{number}")
    await files.write("other", b"changed")
    assert ((tmp_path / "vaka.toml").read_text(), (tmp_path / "free").read_text()) == ("mine", "mine")


async def test_a_protected_file_is_not_written_through_a_link(tmp_path: Path, way: OpenerName) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "settings.json").write_text("mine")
    (tmp_path / ".claude").symlink_to("real")
    files = DiskFiles(tmp_path, protected=PROTECTED, opener=way)
    with pytest.raises(FileRefused, match="same file as"):
        await files.write("real/settings.json", b"changed")
    assert (tmp_path / "real" / "settings.json").read_text() == "mine"


async def test_an_extra_rule_protects_more_paths(tmp_path: Path) -> None:
    (tmp_path / "a.lock").write_text("mine")
    os.link(tmp_path / "a.lock", tmp_path / "innocent")
    files = DiskFiles(tmp_path, protected=ProtectedFiles(extra_rule=lambda path: path.endswith(".lock")))
    await assert_refused(files, "a.lock", "new/b.lock")
    with pytest.raises(FileRefused, match=r"same file as 'a\.lock'"):
        await files.write("innocent", b"changed")
    await files.write("free", b"x")


@pytest.mark.parametrize("path", ["", ".", "a/..", "../x", "/etc", "a\0", "**/", "**/.."])
def test_an_invalid_protected_path_is_refused(path: str) -> None:
    with pytest.raises(FileRefused):
        ProtectedFiles([path])


async def test_strict_follows_no_link_at_all(tmp_path: Path, way: OpenerName) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("x")
    (tmp_path / "link").symlink_to("real")
    files = DiskFiles(tmp_path, strict=True, opener=way)
    for path in ("link", "link/file"):
        for action in (files.stat, files.entries, files.read):
            with pytest.raises(FileRefused, match="not followed"):
                await action(path)
    assert (await files.read("real/file")).data == b"x"
    assert [info.kind for info in await files.entries("")] == ["link", "folder"]


async def test_a_root_reached_by_a_link_is_the_folder_it_leads_to(tmp_path: Path, way: OpenerName) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    files = DiskFiles(tmp_path / "link", opener=way)
    assert files.root == str(tmp_path / "real")
    await files.write("file", b"x")
    (tmp_path / "real" / "absolute").symlink_to(tmp_path / "link" / "file")
    assert (await files.read("absolute")).data == b"x"
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("/etc")
    assert (await files.read("file")).data == b"x"


async def test_a_root_that_is_removed_is_missing(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    files = DiskFiles(tmp_path / "root")
    (tmp_path / "root").rmdir()
    for action in (files.stat, files.entries):
        with pytest.raises(FileMissing, match="no longer there"):
            await action("")
    with pytest.raises(FileMissing):
        await files.write("x", b"")


def test_a_root_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="not a folder"):
        DiskFiles(tmp_path / "file")
    with pytest.raises(FileMissing, match="not a folder"):
        DiskFiles(tmp_path / "gone")


async def test_files_in_proc_and_devices_are_refused(way: OpenerName) -> None:
    files = DiskFiles("/", opener=way)
    for path in ("proc/self/environ", "proc/self/root/etc/passwd", "proc/self/mem", "proc", "proc/1/cmdline"):
        for action in (files.stat, files.entries, files.read):
            with pytest.raises(FileRefused, match="in /proc"):
                await action(path)
    for path in ("dev/null", "dev/zero"):
        with pytest.raises(FileRefused, match="device"):
            await files.read(path)


def test_descriptors_are_closed(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        for _ in range(500):
            DiskFiles(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_no_descriptor_stays_open(tmp_path: Path, way: OpenerName) -> None:
    (tmp_path / "out").symlink_to("/etc/passwd")
    (tmp_path / "in").symlink_to("a/b")
    os.mkfifo(tmp_path / "pipe")
    files = DiskFiles(tmp_path, opener=way, protected=["kept"])
    before = list_open_in(tmp_path)
    for path in ("a/b", "out", "in", "pipe", "gone/x", "a", "a/b/c", "kept/x"):
        for action in (files.stat, files.entries, files.read, files.delete):
            for attempt in (files.write(path, b"x"), action(path)):
                try:
                    await attempt
                except FileError:
                    continue
    after = list_open_in(tmp_path)
    assert after == before


async def test_a_full_disk_is_an_error_and_keeps_the_old_content(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    files = DiskFiles(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(FileError, match="too large"):
            await files.write("file", b"x" * 1_000_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "old")]


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, FileError, "the disk is full"),
        (errno.EIO, FileError, "the disk failed"),
        (errno.EROFS, FileError, "the disk is read-only"),
        (errno.EACCES, FileError, "permission denied"),
        (errno.ENOENT, FileMissing, "no such file"),
        (errno.ENAMETOOLONG, FileRefused, "too long"),
        (errno.ELOOP, FileRefused, "too many links"),
        (errno.EMFILE, FileError, "Too many open files"),
    ],
)
def test_system_errors_have_readable_messages(number: int, kind: type[FileError], words: str) -> None:
    with pytest.raises(FileError) as raised, translate_os_errors("caf\udce9"):
        raise OSError(number, os.strerror(number))
    assert raised.type is kind
    assert words in str(raised.value)
    assert str(raised.value).encode().startswith(b"'caf\\udce9'")


async def test_the_owner_of_a_file_is_kept_by_root(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    if os.geteuid() == 0:
        os.chown(path, 1234, 5678)
    before = path.stat()
    await DiskFiles(tmp_path).write("file", b"new", known=sha256_digest(b"old"))
    after = path.stat()
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
async def test_what_root_makes_belongs_to_the_owner_of_its_folder(tmp_path: Path) -> None:
    os.chown(tmp_path, 1234, 5678)
    await DiskFiles(tmp_path).write("new/folder/file", b"new", new=True)
    made = [tmp_path / name for name in ("new", "new/folder", "new/folder/file")]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(1234, 5678)}


async def test_a_running_program_can_be_replaced(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(Path(sys.executable).resolve().read_bytes())
    program.chmod(0o755)
    reading, writing = os.pipe()
    running = os.posix_spawn(
        program,
        [str(program), "-S", "-c", "input()"],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, reading, 0),
            (os.POSIX_SPAWN_CLOSE, writing),
        ],
    )
    os.close(reading)
    try:
        await DiskFiles(tmp_path).write("program", b"new")
    finally:
        os.write(writing, b"\n")
        os.close(writing)
        os.waitpid(running, 0)
    assert program.read_bytes() == b"new"


def test_a_system_without_openat_is_refused(tmp_path: Path) -> None:
    program = (
        "import os, sys; os.supports_dir_fd.clear()\n"
        "from vaka.files.disk import DiskFiles\n"
        "from vaka.core.types.errors import ConfigError\n"
        "try: DiskFiles(sys.argv[1])\n"
        "except ConfigError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert "cannot be opened safely" in done.stdout
