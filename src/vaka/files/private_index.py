"""A private git index and object folder that record the files of a folder of this machine.

Only these two are written: the repository of the folder, if it has one, lends its objects and the list of its files.
git runs with a repository folder and settings of ours, so hooks, filters, attributes and other settings of the folder
have no effect, and the recorded bytes are the bytes of the files. Files that git ignores are not recorded.
"""

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from vaka.core.types.errors import FileError
from vaka.files.repositories import Repository, digest_references, find_repository, head_of, read_text

if sys.platform != "win32":
    import fcntl

_MAX_UNRECORDED = 5_000
_MAX_OUTPUT_BYTES = 64 * 1024**2
_MAX_SECONDS = 60.0
_CHUNK_BYTES = 1 << 20
_MAX_EMPTY_FOLDERS = 1_000

_FILE_MODES = (b"100644", b"100755", b"120000")
_CONFIG = """[core]
\trepositoryformatversion = {version}
\tbare = false
\tfilemode = true
\tsymlinks = true
\tignorecase = false
\tautocrlf = false
\tfsmonitor = false
\thooksPath = /dev/null
\tattributesFile = /dev/null
\tprotectHFS = false
\tprotectNTFS = false
\tlooseCompression = 1
\tfsync = loose-object
\tfsyncMethod = batch
[gc]
\tauto = 0
"""
_SHA256_CONFIG = "[extensions]\n\tobjectFormat = sha256\n"
_ATTRIBUTES = "* -text !eol !ident !filter !working-tree-encoding\n"
_USES_SHA256 = re.compile(r"^\s*objectformat\s*=\s*\"?sha256", re.IGNORECASE | re.MULTILINE)


class RecordLimits(NamedTuple):
    """How much is recorded."""

    file_bytes: int = 32 * 1024**2
    """The largest file."""
    files: int = 20_000
    """New and changed files at once. Unchanged files of a repository are not counted."""
    total_bytes: int = 256 * 1024**2
    tracked_files: int = 300_000
    """Files of a repository."""
    pack_bytes: int = 16 * 1024**2
    """The size from which another blob is begun."""


class UnrecordableFolderError(FileError):
    """The files of a folder cannot be recorded; the text is the reason."""


class TreeRecord(NamedTuple):
    """The files of a folder at one moment."""

    tree: str
    """The id of the git tree with the recorded files."""
    folders: frozenset[bytes]
    """Folders that have no recorded file, or only untracked ones."""
    unrecorded: Mapping[bytes, tuple[int, ...]]
    """Files and folders that are not in the tree, with their identity and times."""
    nested: frozenset[bytes]
    """Folders that are repositories of their own."""
    time_ns: int
    """The time before the files were listed."""


class TreeChange(NamedTuple):
    """A file that differs between two trees; an empty mode stands for no file."""

    path: bytes
    mode: bytes
    oid: bytes
    new_mode: bytes
    new_oid: bytes


class RepositoryState(NamedTuple):
    """The state of a folder's repository, without the files."""

    head: str = ""
    """The commit that is checked out, and its branch."""
    references: str = ""
    """A digest of branches, tags, the stash, and of the operation that git is in the middle of."""
    staged: str = ""
    """A digest of the files in its index, empty if it has none or cannot be read."""


class _Listing(NamedTuple):
    changed: list[bytes]
    """Recorded files that may have changed."""
    untracked: list[bytes]
    others: list[bytes]
    """Untracked and ignored files, and folders that have only such files, ending with a slash."""
    closed: list[bytes]
    """Folders that cannot be listed or entered, ending with a slash."""


class PrivateIndex:
    """The record of one folder. Its methods block; one thread at a time uses an instance, processes wait for a lock."""

    def __init__(
        self,
        folder: str,
        storage: str | os.PathLike[str],
        *,
        global_ignores: Sequence[str] = (),
        skipped: Iterable[str] = (),
        limits: RecordLimits = RecordLimits(),
    ) -> None:
        """``storage`` holds the index and the objects; ``global_ignores`` are the files with ignore rules of the user.

        ``skipped`` are files and folders that are neither recorded nor named, such as the files of the store.

        The folder may be below the top of its repository; then only files in it are recorded.
        """
        self.folder = os.path.realpath(folder)
        self.repository = find_repository(self.folder)
        self.top = self.repository.top if self.repository else self.folder
        inner = os.path.relpath(self.folder, self.top)
        self._prefix = b"" if inner == "." else os.fsencode(inner) + b"/"
        self.storage, self._limits = Path(storage), limits
        ignores = [*global_ignores, *([f"{self.repository.common_folder}/info/exclude"] if self.repository else [])]
        self._ignores = [f"--exclude-from={name}" for name in ignores if os.access(name, os.R_OK)]
        top = os.fsencode(self.top).rstrip(b"/") + b"/"
        names = [os.fsencode(path) for path in (*skipped, str(self.storage.parent))]
        self._skipped = tuple(name.removeprefix(top) for name in names if name.startswith(top))
        self._last_tree: tuple[tuple[int, ...], str] | None = None
        self._last_staged: tuple[tuple[int, ...], str] | None = None
        self._git = shutil.which("git")

    def read_repository(self) -> RepositoryState:
        """Return the state of the repository, an empty one without a repository."""
        found = self.repository
        if found is None:
            return RepositoryState()
        return RepositoryState(head_of(found), digest_references(found), self._digest_staged(found))

    def record(self) -> TreeRecord:
        """Record the files as they are now. Only files that have changed since the last record are read.

        Raises ``UnrecordableFolderError``.
        """
        try:
            with self._lock():
                return self._record()
        except OSError as error:
            raise UnrecordableFolderError(f"its files cannot be recorded: {error}") from error

    def compare(self, tree: str, other: str) -> list[TreeChange]:
        """Return the files that differ between two trees. Raises ``UnrecordableFolderError``."""
        if tree == other:
            return []
        output = self._run("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", tree, other)
        fields = output.split(b"\0")
        return [_parse_change(facts, path) for facts, path in zip(fields[:-1:2], fields[1::2], strict=True)]

    def folders_in(self, tree: str, folders: Iterable[bytes]) -> set[bytes]:
        """Return which of these folders have files in a tree."""
        names = sorted(folders)
        found = self._run("ls-tree", "-d", "-z", "--name-only", tree, "--", *names) if names else b""
        return {name for name in found.split(b"\0") if name}

    def read_objects(self, oids: Iterable[bytes]) -> Generator[bytes | None]:
        """Yield the content of each object, ``None`` for a missing or too large object."""
        with self._start("cat-file", "--batch", errors=subprocess.DEVNULL) as process:
            assert process.stdin is not None  # noqa: S101  # both are pipes
            assert process.stdout is not None  # noqa: S101
            for oid in oids:  # one at a time, so that neither pipe is ever full
                process.stdin.write(oid + b"\n")
                process.stdin.flush()
                header = process.stdout.readline().split()
                if len(header) != 3 or header[1] != b"blob":
                    yield None
                    continue
                yield _read_content(process.stdout, int(header[2]), self._limits.file_bytes)
            process.stdin.close()

    def prune(self, expire: str) -> None:
        """Remove objects that no index has and that are older than a time that git understands."""
        with self._lock():
            self._run("prune", f"--expire={expire}")

    # ------------------------------------------------------------------------------------------------ recording

    def _record(self) -> TreeRecord:
        self._prepare()
        time_ns = time.time_ns()
        listing = self._list_files()
        nested = frozenset(path for path in listing.untracked if path.endswith(b"/"))
        untracked = [path for path in listing.untracked if path not in nested]
        unfit = self._update_index([*listing.changed, *untracked])
        others = {path for path in listing.others if path not in nested}
        folders = frozenset(path for path in others if path.endswith(b"/"))
        ignored = others - set(untracked) - _folders_above(untracked)
        return TreeRecord(
            self._write_tree(),
            folders,
            self._signatures_of([*unfit, *listing.closed, *(ignored if len(ignored) <= _MAX_UNRECORDED else ())]),
            nested,
            time_ns,
        )

    def _prepare(self) -> None:
        """Create the index, with the files that the repository tracks, the first time."""
        if self._git is None:
            raise UnrecordableFolderError("git is not installed")
        if (self.storage / "index").is_file():
            return
        is_sha256 = self.repository is not None and _USES_SHA256.search(
            read_text(Path(self.repository.common_folder, "config"))
        )
        config = _CONFIG.format(version=1 if is_sha256 else 0) + (_SHA256_CONFIG if is_sha256 else "")
        for name in ("objects/info", "refs", "info"):
            (self.storage / name).mkdir(parents=True, exist_ok=True)
        self._write("config", config)
        self._write("info/attributes", _ATTRIBUTES)
        self._write("folder", os.fsdecode(self.folder))
        if self.repository is not None:
            self._write("objects/info/alternates", _quote_alternate(f"{self.repository.common_folder}/objects") + "\n")
        self._write("HEAD", "ref: refs/heads/none\n")
        self._add_tracked_files()

    def _write(self, name: str, text: str) -> None:
        (self.storage / name).write_text(text, "utf-8", "surrogateescape")

    def _list_staged(self, *pathspec: bytes) -> bytes:
        """Return the entries of the user's index, none if it is missing, damaged, or split."""
        if self.repository is not None and Path(self.repository.git_folder, "index").is_file():
            with suppress(UnrecordableFolderError):
                return self._run("ls-files", "-z", "--stage", *pathspec, index=f"{self.repository.git_folder}/index")
        return b""

    def _digest_staged(self, repository: Repository) -> str:
        """Return a digest of the entries of the user's index, without the times that ``git status`` changes in it."""
        try:
            state = _identity_of(os.stat(f"{repository.git_folder}/index"))  # noqa: PTH116
        except OSError:
            return ""
        if self._last_staged is None or self._last_staged[0] != state:
            self._last_staged = (state, hashlib.sha256(self._list_staged()).hexdigest())
        return self._last_staged[1]

    def _add_tracked_files(self) -> None:
        """Add the files of the user's index: git compares them with their objects, and stores none of them again."""
        listed = self._list_staged(*self._pathspec())  # without them all files are recorded
        entries = [entry for entry in listed.split(b"\0") if entry.startswith(_FILE_MODES) and b" 0\t" in entry]
        if len(entries) > self._limits.tracked_files:
            raise UnrecordableFolderError(f"it has more than {self._limits.tracked_files:,} files")
        temporary = f"{self.storage}/index.new"
        with suppress(FileNotFoundError):
            os.unlink(temporary)  # noqa: PTH108  # of a process that was killed
        self._run("read-tree", "--empty", index=temporary)
        if entries:
            self._run("update-index", "-z", "--index-info", index=temporary, data=b"\0".join(entries) + b"\0")
            self._run("update-index", "-q", "--really-refresh", index=temporary, may_fail=True)
        os.replace(temporary, f"{self.storage}/index")  # noqa: PTH105

    def _pathspec(self) -> tuple[bytes, ...]:
        return (b"--", b":(literal)" + self._prefix) if self._prefix else ()

    def _list_files(self) -> _Listing:
        commands: tuple[tuple[str, ...], ...] = (
            ("diff-files", "-z", "--name-only", "--no-renames", "--ignore-submodules=all"),
            ("ls-files", "-z", "-o", "--exclude-standard", *self._ignores),
            ("ls-files", "-z", "-o", "--directory"),
        )
        with open(self.storage / "errors", "wb") as errors:  # noqa: PTH123
            processes = [self._start(*command, *self._pathspec(), errors=errors) for command in commands]
        timer = threading.Timer(_MAX_SECONDS, lambda: _kill_all(processes))
        timer.start()
        try:
            changed, untracked, others = (self._drop_skipped(_read_names(process)) for process in processes)
        finally:
            timer.cancel()
            _kill_all(processes)
            for process in processes:
                process.__exit__(None, None, None)
        return _Listing(changed, untracked, others, self._find_closed_folders())

    def _find_closed_folders(self) -> list[bytes]:
        """Return the folders that git could not list or enter; the folders are searched only if it has complained."""
        if not os.stat(self.storage / "errors").st_size:  # noqa: PTH116
            return []
        found: list[bytes] = []
        for folder, inner, _ in os.walk(os.fsencode(self.folder)):
            inner[:] = [name for name in inner if name != b".git"]
            for name in inner:
                path = os.path.join(folder, name)  # noqa: PTH118  # bytes
                if not (os.access(path, os.R_OK | os.X_OK) or os.path.islink(path)):  # noqa: PTH114
                    found.append(os.path.relpath(path, os.fsencode(self.top)) + b"/")
        return self._drop_skipped(found)

    def _drop_skipped(self, names: list[bytes]) -> list[bytes]:
        if not self._skipped:
            return names
        folders = tuple(path + b"/" for path in self._skipped)
        return [name for name in names if name not in self._skipped and not name.startswith(folders)]

    def _update_index(self, candidates: Sequence[bytes]) -> set[bytes]:
        """Record files in the index; return the files that cannot be recorded."""
        fit = list[bytes]()
        absent = list[bytes]()
        unfit = set[bytes]()
        size = 0
        for path in candidates:
            status = self._lstat(path)
            if status is None or not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
                absent.append(path)
            elif stat.S_ISREG(status.st_mode) and not self._is_recordable(path, status):
                unfit.add(path)
            else:
                fit.append(path)
                size += status.st_size
        limits = self._limits
        if len(fit) > limits.files or size > limits.total_bytes:
            raise UnrecordableFolderError(
                f"{len(fit):,} of its files, with {size / 1024**2:,.1f} MiB, are new or changed; at most "
                f"{limits.files:,} with {limits.total_bytes // 1024**2:,} MiB are recorded"
            )
        if absent or unfit:
            self._run("update-index", "-z", "--force-remove", "--stdin", data=_join_names([*absent, *unfit]))
        if fit:
            self._run("update-index", "-z", "--add", "--remove", "--replace", "--stdin", data=_join_names(fit))
        return unfit

    def _is_recordable(self, path: bytes, status: os.stat_result) -> bool:
        return status.st_size <= self._limits.file_bytes and os.access(self._absolute(path), os.R_OK)

    def _write_tree(self) -> str:
        state = _identity_of(os.stat(self.storage / "index"))  # noqa: PTH116
        if self._last_tree is None or self._last_tree[0] != state:
            tree = self._run("write-tree", "--missing-ok").decode().strip()
            self._last_tree = (_identity_of(os.stat(self.storage / "index")), tree)  # noqa: PTH116
        return self._last_tree[1]

    def _lstat(self, path: bytes) -> os.stat_result | None:
        """Return the status of a file, ``None`` if there is none, or only one behind a link."""
        name = self._absolute(path.rstrip(b"/"))
        parent = os.path.dirname(name)  # noqa: PTH120  # bytes
        try:
            return os.lstat(name) if os.path.realpath(parent) == parent else None
        except OSError:
            return None

    def _absolute(self, path: bytes) -> bytes:
        return os.path.join(os.fsencode(self.top), path)  # noqa: PTH118  # bytes

    def _signatures_of(self, paths: Iterable[bytes]) -> dict[bytes, tuple[int, ...]]:
        """Return the identities and times of files, and of folders that have files."""
        found: dict[bytes, tuple[int, ...]] = {}
        for path in paths:
            status = self._lstat(path)
            if status is not None and not (stat.S_ISDIR(status.st_mode) and _has_no_files(self._absolute(path))):
                found[path] = _identity_of(status)
        return found

    # ------------------------------------------------------------------------------------------------ git

    @contextmanager
    def _lock(self) -> Generator[None]:
        self.storage.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self.storage / "lock", "wb") as file:  # noqa: PTH123
            if sys.platform != "win32":
                fcntl.flock(file, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                os.unlink(self.storage / "index.lock")  # noqa: PTH108  # of a process that was killed: the lock is ours
            yield

    def _run(self, *arguments: str | bytes, index: str = "", data: bytes = b"", may_fail: bool = False) -> bytes:
        process = self._start(*arguments, index=index)
        timer = threading.Timer(_MAX_SECONDS, process.kill)
        timer.start()
        try:
            output, errors = process.communicate(data)
        finally:
            timer.cancel()
        if process.returncode and not may_fail:
            reason = errors.decode("utf-8", "replace").strip().splitlines()
            raise UnrecordableFolderError(f"git {os.fsdecode(arguments[0])}: {reason[-1] if reason else 'stopped'}")
        return output

    def _start(
        self, *arguments: str | bytes, index: str = "", errors: "IO[bytes] | int" = subprocess.PIPE
    ) -> "subprocess.Popen[bytes]":
        """Start git; ``errors`` gets its messages, such as those about folders that it cannot read."""
        if self._git is None:
            raise UnrecordableFolderError("git is not installed")
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C",
            "HOME": str(self.storage),
            "GIT_DIR": str(self.storage),
            "GIT_WORK_TREE": self.top,
            "GIT_INDEX_FILE": index or f"{self.storage}/index",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
        }
        return subprocess.Popen(
            [self._git, *arguments],
            cwd=self.top,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )


def _quote_alternate(path: str) -> str:
    """Return the path of an object folder as a line of the file that names it; a line end is written as in C."""
    if "\n" not in path:
        return path
    escapes = {"\n": "\\n", '"': '\\"', "\\": "\\\\"}
    return '"' + "".join(escapes.get(letter, letter) for letter in path) + '"'


def _read_names(process: "subprocess.Popen[bytes]") -> list[bytes]:
    """Return the names that git prints. Raises ``UnrecordableFolderError`` if they are too many or git fails."""
    assert process.stdout is not None  # noqa: S101  # it is a pipe
    data = process.stdout.read(_MAX_OUTPUT_BYTES + 1)
    if len(data) > _MAX_OUTPUT_BYTES:
        raise UnrecordableFolderError("it has too many files that are not in a repository")
    if process.wait():
        raise UnrecordableFolderError("git cannot list its files in time, or fails")
    return [name for name in data.split(b"\0") if name]


def _read_content(stream: IO[bytes], size: int, largest: int) -> bytes | None:
    """Read an object and the line end after it; return ``None`` if it is too large."""
    if size <= largest:
        return stream.read(size + 1)[:-1]
    left = size + 1
    while left > 0:
        left -= len(stream.read(min(left, _CHUNK_BYTES))) or left
    return None


def _kill_all(processes: Iterable["subprocess.Popen[bytes]"]) -> None:
    for process in processes:
        process.kill()


def _join_names(names: Iterable[bytes]) -> bytes:
    return b"".join(name + b"\0" for name in names)


def _parse_change(facts: bytes, path: bytes) -> TreeChange:
    mode, new_mode, oid, new_oid, _ = facts[1:].split(b" ")
    return TreeChange(path, _mode_or_none(mode), oid, _mode_or_none(new_mode), new_oid)


def _mode_or_none(mode: bytes) -> bytes:
    return b"" if mode == b"000000" else mode


def _folders_above(paths: Iterable[bytes]) -> set[bytes]:
    """Return the folders of files and the folders of these, each with a slash at its end."""
    found: set[bytes] = set()
    for path in paths:
        end = path.rfind(b"/")
        while end > 0 and path[: end + 1] not in found:
            found.add(path[: end + 1])
            end = path.rfind(b"/", 0, end)
    return found


def _has_no_files(folder: bytes) -> bool:
    """Return whether neither a folder nor the folders in it have files; a very large one counts as having some."""
    waiting, seen = [folder], 0
    while waiting and seen < _MAX_EMPTY_FOLDERS:
        seen += 1
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        return False
                    waiting.append(os.fsencode(entry.path))
        except OSError:
            return False
    return not waiting


def _identity_of(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
