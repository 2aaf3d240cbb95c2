"""The tools of the demonstration: they look at a folder, write a report, and sign a guest book."""

import asyncio
import os
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import vaka

HOME = Path(os.environ.get("VAKA_DEMO_HOME", "vaka-demo"))
SKIPPED = {"vaka-demo", ".git", ".venv", ".venv-peers", "node_modules", "__pycache__", "target"}


def _survey(folder: Path) -> tuple[Counter[str], list[tuple[int, str]]]:
    kinds: Counter[str] = Counter()
    sizes: list[tuple[int, str]] = []
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIPPED]
        for name in files:
            path = Path(where, name)
            if path.is_file():
                kinds[path.suffix or "(none)"] += 1
                sizes.append((path.stat().st_size, str(path.relative_to(folder))))
    return kinds, sorted(sizes, reverse=True)[:5]


@vaka.tool(effect="read")
def look_around(folder: Annotated[str, "The folder to look at."] = ".") -> dict[str, object]:
    """Count the files of a folder by kind and name the largest."""
    kinds, largest = _survey(Path(folder))
    return {"files": kinds.total(), "kinds": dict(kinds.most_common(5)), "largest": [name for _, name in largest]}


@vaka.tool(effect="once", timeout=5)
async def sign_guest_book(name: Annotated[str, "Who was here."]) -> str:
    """Add one line to the guest book. It must not be signed twice."""
    with (HOME / "guests.txt").open("a", encoding="utf-8") as book:
        book.write(f"{datetime.now(UTC):%H:%M:%S} {name}\n")
    return "signed"


@vaka.tool(effect="idempotent", timeout=30)
async def write_report(context: vaka.ToolContext, folder: str = ".") -> str:
    """Write a report of a folder to report.md, in slow steps; a second run with the same key changes nothing."""
    kinds, largest = _survey(Path(folder))
    lines = ["# What is here", "", *(f"- {count} × `{kind}`" for kind, count in kinds.most_common(8)), ""]
    lines += ["Largest files:", "", *(f"- {name} ({size:,} bytes)" for size, name in largest), ""]
    for done in range(1, 11):
        context.emit(f"writing … {done * 10} %\n")
        await asyncio.sleep(0.15)
    (HOME / "report.md").write_text("\n".join([*lines, f"Key of this report: {context.key}", ""]), encoding="utf-8")
    return f"report.md written, {len(lines)} lines (attempt {context.attempt})"
