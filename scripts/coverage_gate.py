"""Combine the coverage of the last run and fail if src or its core has too little."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / ".coverage" / "coverage.json"

# The minimum of lines and branches together, in percent, by folder.
GATES = [("src/vaka/", 90.0), ("src/vaka/core/", 98.0)]


@dataclass
class CoverageTotal:
    """The coverage of a folder."""

    reached: int = 0
    all: int = 0
    branches: int = 0
    all_branches: int = 0

    def add_file(self, summary: dict[str, Any]) -> None:
        branches, all_branches = summary.get("covered_branches", 0), summary.get("num_branches", 0)
        self.reached += summary["covered_lines"] + branches
        self.all += summary["num_statements"] + all_branches
        self.branches += branches
        self.all_branches += all_branches

    @property
    def percent(self) -> float:
        """Lines and branches together, as coverage itself counts."""
        return 100 * self.reached / self.all if self.all else 100.0

    @property
    def percent_branches(self) -> float:
        return 100 * self.branches / self.all_branches if self.all_branches else 100.0


def sum_coverage(files: dict[str, Any]) -> dict[str, CoverageTotal]:
    """Add up the files of each gate."""
    found = {folder: CoverageTotal() for folder, _ in GATES}
    for path, file in files.items():
        for folder, total in found.items():
            if path.replace("\\", "/").startswith(folder):
                total.add_file(file["summary"])
    return found


def list_worst_files(files: dict[str, Any], folder: str) -> list[str]:
    """Return the files of a folder with the most missing lines."""
    missing = {
        path: file["summary"]["missing_lines"] + file["summary"].get("missing_branches", 0)
        for path, file in files.items()
        if path.startswith(folder)
    }
    most = sorted(missing, key=lambda path: -missing[path])[:8]
    return [f"    {path}: {missing[path]} lines and branches not reached" for path in most if missing[path]]


def main() -> int:
    """Print each gate and return the exit code."""
    command = [sys.executable, "-m", "coverage", "json", "--quiet"]
    subprocess.run(command, cwd=ROOT, check=True)
    files: dict[str, Any] = json.loads(REPORT.read_text())["files"]
    found, failed = sum_coverage(files), False
    for folder, least in GATES:
        total = found[folder]
        short = total.percent < least or not total.all
        failed = failed or short
        verdict = "TOO LITTLE" if short else "ok"
        print(
            f"coverage {folder}: {total.percent:.2f}% (branches alone {total.percent_branches:.2f}%),"
            f" at least {least:.0f}%: {verdict}"
        )
        if short:
            print("\n".join(list_worst_files(files, folder)) or "    nothing was measured")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
