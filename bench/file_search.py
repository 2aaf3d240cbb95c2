"""Glob and Grep in a tree of many files, compared with ripgrep alone."""

import asyncio
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.measure import raised_priority
from bench.row import Row, failed_row
from vaka.files.workspace import WorkspaceFiles
from vaka.tools.builtin.search import grep
from vaka.tools.builtin.search.glob import find_files

WORDS = (
    "alpha",
    "beta",
    "gamma",
    "def",
    "class",
    "return",
    "import",
    "value",
    "self",
    "None",
    "print",
    "list",
    "error",
)
TARGET = 1.5


def make_tree(root: Path, folders: int, files: int) -> int:
    """Make a tree of small source files, some of them ignored; return the number of files."""
    chance = random.Random(7)
    (root / ".gitignore").write_text("*.log\nbuild/\n/dist\n!keep.log\n")
    for folder in range(folders):
        home = root / f"package{folder % 20}" / f"module{folder}"
        home.mkdir(parents=True)
        for number in range(files):
            ending = chance.choice(["py", "py", "py", "js", "md", "txt", "log"])
            lines = [" ".join(chance.choices(WORDS, k=8)) for _ in range(60)]
            (home / f"file{number}.{ending}").write_text("\n".join(lines))
    (root / "package1" / "needle.py").write_text("here is the needle\n")
    return folders * files + 1


async def time_work(work: Callable[[], Awaitable[Any]]) -> float:
    start = time.perf_counter()
    await work()
    return (time.perf_counter() - start) * 1000


def make_ripgrep_run(root: Path, *arguments: str) -> Callable[[], Awaitable[Any]]:
    command = ["rg", "--no-config", "--hidden", "--no-require-git", *arguments]

    async def run() -> None:
        await asyncio.to_thread(subprocess.run, command, cwd=root, capture_output=True, check=False)

    return run


async def compare(ours: Callable[[], Awaitable[Any]], theirs: Callable[[], Awaitable[Any]], repeats: int) -> Row:
    """Measure both in turns."""
    await ours(), await theirs()
    mine, bare = list[float](), list[float]()
    for _ in range(repeats):
        mine.append(await time_work(ours))
        bare.append(await time_work(theirs))
    ratio = statistics.median([one / other for one, other in zip(mine, bare, strict=True)])
    return Row(
        name="",
        value=statistics.median(mine),
        unit="ms",
        low=min(mine),
        high=max(mine),
        raw=statistics.median(bare),
        ratio=ratio,
    )


async def measure_tree(root: Path, count: int, repeats: int) -> list[Row]:
    files = WorkspaceFiles(root)

    def search(engine: grep.GrepEngine, **given: Any) -> Callable[[], Awaitable[Any]]:
        return lambda: grep.run_grep(files, given, engine=engine)

    sorted_files = make_ripgrep_run(root, "--files", "--glob=*.py", "--sortr=modified")
    rare, common = (
        make_ripgrep_run(root, "--count", "needle", "."),
        make_ripgrep_run(root, "--count", "def.*class", "."),
    )
    cases: list[tuple[str, Callable[[], Awaitable[Any]], Callable[[], Awaitable[Any]], bool]] = [
        ("Glob **/*.py", lambda: find_files(files, "**/*.py"), sorted_files, True),
        ("Grep, a rare word", search("ripgrep", pattern="needle"), rare, True),
        ("Grep, a pattern all over", search("ripgrep", pattern="def.*class"), common, True),
        (
            "Grep, lines of a rare word",
            search("ripgrep", pattern="needle", output_mode="content"),
            make_ripgrep_run(root, "--line-number", "needle", "."),
            True,
        ),
        (
            "Grep, lines of one type",
            search("ripgrep", pattern="self", type="py", output_mode="content"),
            make_ripgrep_run(root, "--type=py", "--line-number", "self", "."),
            True,
        ),
        ("Grep without ripgrep, a rare word", search("python", pattern="needle"), rare, False),
    ]
    rows: list[Row] = []
    for name, ours, theirs, judged in cases:
        row = await compare(ours, theirs, repeats)
        row.name, row.note = f"{name}, {count:,} files", "raw: ripgrep alone, the same search"
        rows.append(row)
        if judged and row.ratio is not None:
            rows.append(Row(name=f"{name} / ripgrep, {count:,} files", value=row.ratio, unit="×", target=TARGET))
    return rows


async def measure_trees(quick: bool) -> list[Row]:
    found: list[Row] = []
    for folders, files, repeats in ((3, 20, 9 if quick else 25), (40 if quick else 400, 50, 3 if quick else 9)):
        with tempfile.TemporaryDirectory() as folder, raised_priority() as how:
            count = make_tree(Path(folder), folders, files)
            measured = await measure_tree(Path(folder), count, repeats)
        for row in measured:
            row.note = f"{row.note}; {how}" if row.note else ""
        found += measured
    return found


def measure_search(quick: bool) -> list[Row]:
    if shutil.which("rg") is None:
        return [failed_row("searching", "ripgrep is not installed: scripts/system.sh ripgrep")]
    return asyncio.run(measure_trees(quick))
