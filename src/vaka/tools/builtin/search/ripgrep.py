"""Grep with ripgrep: it finds files and line numbers; the lines shown are read through the session's own files.

Where the kernel has Landlock, ripgrep can read the folders of the session and nothing else. Landlock restricts the
calling thread and its children: a new thread restricts itself, starts the process and ends; the rest of this process
stays unrestricted.
"""

import asyncio
import base64
import functools
import os
import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeAlias

import msgspec

from vaka.core.ports.files import FileKind, Files
from vaka.core.types.errors import FileError, InvalidInput
from vaka.system import landlock
from vaka.tools.builtin.search.grep_query import GrepQuery, LineRange, name_patterns_of

HelperProcess: TypeAlias = subprocess.Popen[bytes]

_READ_RIGHTS = landlock.EXECUTE | landlock.READ_FILE | landlock.READ_DIR
_SYSTEM_PATHS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
"""Paths that every program reads when it starts."""


@functools.cache
def is_supported() -> bool:
    """Return whether this kernel has Landlock."""
    return landlock.abi_version() > 0


async def run_confined(
    argv: Sequence[str],
    readable: Sequence[str],
    *,
    cwd: str,
    output: IO[bytes],
    errors: IO[bytes],
    max_output: int | None = None,
) -> int:
    """Run a program that can read only these paths and return its exit code. Without Landlock it is not confined.

    It prints into files, so that no reader is needed meanwhile. A program that prints more than ``max_output`` bytes is
    killed where the system supports that. When this call is cancelled, the program is killed and has ended on return.
    """
    # A thread of its own, since a restriction is irrevocable; it ends with the executor.
    executor = ThreadPoolExecutor(1)
    starting = executor.submit(_start_confined, argv, readable, cwd, output, errors)
    executor.shutdown(wait=False)
    try:
        process = await asyncio.wrap_future(starting)
    except asyncio.CancelledError:
        if not starting.cancel():  # the thread starts the program, or has started it
            await asyncio.to_thread(_kill_started, starting)
        raise
    with suppress(AttributeError, OSError):  # only on Linux, and the process may have ended
        if max_output is not None:
            resource.prlimit(process.pid, resource.RLIMIT_CORE, (0, 0))  # no core dump when the limit kills it
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (max_output, max_output))
    try:
        return await asyncio.to_thread(process.wait)
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()


def _start_confined(
    argv: Sequence[str], readable: Sequence[str], cwd: str, output: IO[bytes], errors: IO[bytes]
) -> HelperProcess:
    with Path(os.devnull).open("rb") as nothing:  # opened before the thread is restricted
        if is_supported():
            restrict_thread([*readable, argv[0], *_SYSTEM_PATHS])
        return subprocess.Popen(
            argv, cwd=cwd, env={}, stdin=nothing, stdout=output, stderr=errors, start_new_session=True
        )


def _kill_started(starting: "Future[HelperProcess]") -> None:
    """Kill the process of a call that was cancelled while the process was being started, and wait for its end."""
    if starting.exception() is None:
        starting.result().kill()
        starting.result().wait()


def restrict_thread(readable: Sequence[str]) -> None:
    """Restrict this thread and all processes it starts to reading these folders and files, irrevocably."""
    ruleset = landlock.create_ruleset(landlock.all_file_rights(1))
    try:
        for path in readable:
            landlock.allow_path(ruleset, path, _READ_RIGHTS, ignored=(FileNotFoundError, NotADirectoryError))
        landlock.restrict_self(ruleset)
    finally:
        os.close(ruleset)


_MAX_OUTPUT_BYTES = 256 << 20
"""The largest output of ripgrep."""
_SMALL_OUTPUT_BYTES = 1 << 20
"""The largest JSON output with all matching lines, which is requested first: it suffices for most searches."""
_LARGE_OUTPUT_BYTES = 32 << 20
"""The largest output with all line numbers."""
_LINE_NUMBER_FLAGS = ("--line-number", "--heading", "--null", "--with-filename", "--max-columns=1")
"""Print line numbers without text, which is the fastest output."""
_END_EVENT = b'\n{"type":"end"'
"""Marks the end of the events of a file; JSON text contains no line end."""
_MATCH_EVENT = b'{"type":"match"'
_MAX_ERROR_BYTES = 2_000
_COMMON_FLAGS = (
    "--no-config",
    "--color=never",
    "--no-messages",
    "--crlf",
    "--hidden",
    "--no-ignore-dot",
    "--no-ignore-global",
    "--no-ignore-parent",
    "--no-require-git",
    "--glob=!.git",
    "--no-heading",
    "--no-ignore-messages",
)
_LINE_NUMBER = re.compile(rb"\d+:")


MatchCounts: TypeAlias = dict[str, int]
"""The number of matches in each file."""

OutputParser: TypeAlias = Callable[[bytes], MatchCounts]


class OutputTooLarge(FileError):
    """The output of ripgrep exceeds its limit."""


def find_ripgrep(root: str) -> str | None:
    """Return the path of ripgrep; ``None`` without one, or when it lies in the folder to search."""
    program = shutil.which("rg")
    if program is None:
        return None
    real = os.path.realpath(program)
    return None if root and (real + "/").startswith(root.rstrip("/") + "/") else real


class Ripgrep:
    """One search with ripgrep."""

    def __init__(self, program: str, files: Files, query: GrepQuery) -> None:
        self._program = program
        self._files = files
        self._query = query
        self._blocks: dict[str, bytes] = {}
        """The output about each file, parsed only for files that are shown."""
        self._numbers_only = False
        """Whether the blocks hold only line numbers."""
        self._parse: OutputParser = lambda printed: {}
        """Parses the output of the search that runs, or was stopped."""
        self._partial_output = b""

    async def count_matches(self, start: str) -> MatchCounts:
        """Return the number of matches in each file of a folder, or in one file."""
        flags = ["--count-matches" if self._query.multiline else "--count", "--null", "--with-filename"]
        self._parse = functools.partial(_parse_counts, top=_top_of(start))
        return await asyncio.to_thread(self._parse, await self._run_search(start, flags, _MAX_OUTPUT_BYTES))

    def partial_matches(self) -> MatchCounts:
        """Return the matches that a search had printed when it was cancelled."""
        return self._parse(self._partial_output[: self._partial_output.rfind(b"\n") + 1])

    async def find_matches(self, start: str, kind: FileKind) -> MatchCounts | None:
        """Return the same and remember all matching lines; ``None`` when the output is too large."""
        self._numbers_only = kind == "folder" and not self._query.multiline
        read = self._read_numbered_blocks if self._numbers_only else self._read_json_blocks
        self._parse = functools.partial(read, top=_top_of(start), kind=kind)
        try:
            if self._numbers_only:
                printed = await self._run_search(start, [*_LINE_NUMBER_FLAGS], _LARGE_OUTPUT_BYTES)
            else:
                printed = await self._run_search(start, ["--json"], _SMALL_OUTPUT_BYTES)
        except OutputTooLarge:
            return None
        if len(printed) <= _SMALL_OUTPUT_BYTES:
            return self._parse(printed)  # quick: the lines of matches are parsed later
        return await asyncio.to_thread(self._parse, printed)

    async def _run_search(self, start: str, flags: list[str], most: int) -> bytes:
        base, target = self._split_base(start)
        if names := [f"--type-add=vaka:{name}" for name in name_patterns_of(self._query)]:
            flags = [*flags, *names, "--type=vaka"]
        rules = await ignore_rules_above(self._files, start)
        if not rules:
            return await self._run(base, flags, [target], most=most)
        with tempfile.NamedTemporaryFile(prefix="vaka-ignore-") as file:
            file.write(rules)
            file.flush()
            return await self._run(base, [*flags, f"--ignore-file={file.name}"], [target], [file.name], most=most)

    async def locate(self, paths: Sequence[str], need: int) -> dict[str, list[LineRange]]:
        """Return the lines of the first matches in each file."""
        parse = _numbered_hits if self._numbers_only else self._hits_in_json
        hits = {path: parse(self._blocks[path]) for path in paths if path in self._blocks}
        rest = [path for path in paths if path not in hits]
        for base in {self._split_base(path)[0] for path in rest}:
            targets = [target for at, target in map(self._split_base, rest) if at == base]
            printed = await self._run(base, ["--json", f"--max-count={need}"], targets)
            hits |= await asyncio.to_thread(self._locate_in_json, printed, "/" if base == "/" else "")
        return hits

    def _locate_in_json(self, printed: bytes, top: str) -> dict[str, list[LineRange]]:
        return {top + _path_of(end): self._hits_in_json(block) for end, block in _split_blocks(printed)}

    def _read_json_blocks(self, printed: bytes, top: str, kind: FileKind) -> MatchCounts:
        counts: MatchCounts = {}
        for end, block in _split_blocks(printed):
            # In a folder, binary files are skipped, as with --count.
            if end["stats"]["matched_lines"] and (end.get("binary_offset") is None or kind == "file"):
                path = top + _path_of(end)
                self._blocks[path] = block
                counts[path] = end["stats"]["matches" if self._query.multiline else "matched_lines"]
        return counts

    def _read_numbered_blocks(self, printed: bytes, top: str, kind: FileKind) -> MatchCounts:
        """Parse ``name NUL lines`` blocks, separated by empty lines."""
        counts: MatchCounts = {}
        start = 0
        while (name := printed.find(b"\0", start)) >= 0:
            end = printed.find(b"\n\n", name)
            block = printed[name + 1 : end if end >= 0 else len(printed)].strip(b"\n")
            path = top + os.fsdecode(printed[start:name]).removeprefix("./")
            # For a binary file the last line is a message instead of a line number; such files are skipped.
            if _LINE_NUMBER.match(block, block.rfind(b"\n") + 1):
                self._blocks[path], counts[path] = block, block.count(b"\n") + 1
            start = end + 2 if end >= 0 else len(printed)
        return counts

    def _hits_in_json(self, block: bytes) -> list[LineRange]:
        hits: list[LineRange] = []
        for line in block.split(b"\n"):
            if line.startswith(_MATCH_EVENT):
                _add_hits(hits, msgspec.json.decode(line)["data"], multiline=self._query.multiline)
        return hits

    def _split_base(self, path: str) -> tuple[str, str]:
        """Return the working folder of ripgrep, and the path from there."""
        if path.startswith("/"):
            return "/", "." + path if path != "/" else "."
        return self._files.root, f"./{path}" if path else "."

    async def _run(
        self,
        base: str,
        flags: Sequence[str],
        targets: Sequence[str],
        extra: Sequence[str] = (),
        *,
        most: int = _MAX_OUTPUT_BYTES,
    ) -> bytes:
        """Run ripgrep and return its output. Raises ``OutputTooLarge``, and ``InvalidInput`` for a bad pattern."""
        query = self._query
        modes = [*(["--ignore-case"] if query.ignore_case else []), *_MULTILINE_FLAGS[query.multiline]]
        argv = [self._program, *_COMMON_FLAGS, *modes, *flags, f"--regexp={query.pattern.rust}", "--", *targets]
        readable = [self._files.root, *getattr(self._files, "roots", ()), *extra]
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            try:
                code = await run_confined(argv, readable, cwd=base, output=output, errors=errors, max_output=most + 1)
            except asyncio.CancelledError:
                output.seek(0)
                self._partial_output = output.read(most)
                raise
            if output.seek(0, os.SEEK_END) > most:
                raise OutputTooLarge("there are too many matches; use a narrower pattern, path, glob or type")
            errors.seek(0)
            message = errors.read(_MAX_ERROR_BYTES).decode("utf-8", "replace").strip()
            if code not in {0, 1} and message:  # without a message only some files could not be read
                raise InvalidInput(f"ripgrep cannot search for this: {message}")
            output.seek(0)
            return output.read()


def _top_of(start: str) -> str:
    """Return what precedes the paths that ripgrep prints."""
    return "/" if start.startswith("/") else ""


def _numbered_hits(block: bytes) -> list[LineRange]:
    return [(number, number) for number in (int(line.partition(b":")[0]) for line in block.split(b"\n"))]


def _bytes_of(part: dict[str, str]) -> bytes:
    return part["text"].encode() if "text" in part else base64.b64decode(part["bytes"])


def _path_of(event: dict[str, Any]) -> str:
    path: dict[str, str] = event["path"]
    return (path.get("text") or os.fsdecode(_bytes_of(path))).removeprefix("./")


def _split_blocks(printed: bytes) -> Generator[tuple[dict[str, Any], bytes]]:
    """Yield the end event of each file with the events before it; the events of a file are contiguous."""
    start = 0
    while (end := printed.find(_END_EVENT, start)) >= 0:
        line = printed[end + 1 : printed.find(b"\n", end + 1)]
        yield msgspec.json.decode(line)["data"], printed[start:end]
        start = end + 1 + len(line)


def _parse_counts(printed: bytes, top: str) -> MatchCounts:
    """Parse ``name NUL number LF`` records; names may contain line ends."""
    counts: MatchCounts = {}
    name = ""
    for piece in os.fsdecode(printed).split("\0"):
        if name:
            number, _, name_after = piece.partition("\n")
            counts[top + name.removeprefix("./")] = int(number)
            name = name_after
        else:
            name = piece
    return counts


def _add_hits(hits: list[LineRange], match: dict[str, Any], *, multiline: bool) -> None:
    number: int = match["line_number"]
    if not multiline:
        hits.append((number, number))
        return
    block = _bytes_of(match["lines"])
    for start, end in ((span["start"], span["end"]) for span in match["submatches"]):
        first = number + block.count(b"\n", 0, start)
        last = first + block.count(b"\n", start, max(end - 1, start))
        if hits and first <= hits[-1][1]:
            hits[-1] = (hits[-1][0], max(last, hits[-1][1]))
        else:
            hits.append((first, last))


async def ignore_rules_above(files: Files, start: str) -> bytes:
    """Return the rules of the ``.gitignore`` files above a folder, rewritten for the root of the search."""
    names = [name for name in start.split("/") if name]
    top = "/" if start.startswith("/") else ""
    lines: list[bytes] = []
    for depth in range(len(names) + 1):
        folder = "/".join(names[:depth])
        prefix = f"{top}{folder}/" if folder else top
        is_repository, own = await _exists(files, f"{prefix}.git"), depth == len(names)  # ripgrep reads its own rules
        if is_repository:
            lines = [] if own else _rebase_rules(await _read_or_empty(files, f"{prefix}.git/info/exclude"), folder)
        if not own:
            lines += _rebase_rules(await _read_or_empty(files, f"{prefix}.gitignore"), folder)
    return b"".join(line + b"\n" for line in lines)


async def _exists(files: Files, path: str) -> bool:
    try:
        await files.stat(path)
    except FileError:
        return False
    return True


async def _read_or_empty(files: Files, path: str) -> bytes:
    try:
        return (await files.read(path, size=1 << 20)).data
    except FileError:
        return b""


def _rebase_rules(rules: bytes, folder: str) -> list[bytes]:
    """Return the rules of a ``.gitignore`` rewritten for the root above its folder."""
    moved: list[bytes] = []
    escaped = [b"\\%c" % c if c in b"*?[]{}!# \\" else b"%c" % c for c in os.fsencode(folder)]
    prefix = b"/" + b"".join(escaped) if folder else b""
    for line in rules.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        rule = line.removesuffix(b"\r")
        sign = b"!" if rule.startswith(b"!") else b""
        body = rule[len(sign) :]
        if not body.strip() or rule.startswith(b"#"):
            continue
        anchored = b"/" in body.rstrip(b" ").removesuffix(b"/")
        moved.append(sign + prefix + (b"/" + body.lstrip(b"/") if anchored else b"/**/" + body))
    return moved


_MULTILINE_FLAGS = {True: ["--multiline", "--multiline-dotall", f"--max-filesize={64 * 1024**2}"], False: list[str]()}
