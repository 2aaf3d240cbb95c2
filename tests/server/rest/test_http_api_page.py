"""The pages about the HTTP API: their commands and programs run, and the reference names every request."""

import asyncio
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.server.conftest import Serve, Served
from tests.server.rest.test_turns import deploy
from vaka.agents.react import Agent
from vaka.config.options import Permissions
from vaka.config.server_tables import FEATURE_NAMES
from vaka.server.doors import native_operations
from vaka.testing import call, say

Scripted = Callable[..., Agent]
DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "reference" / "http-api.md"


def read_blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def environment_of(served: Served) -> Mapping[str, str]:
    return {**os.environ, "VAKA_URL": served.url, "VAKA_API_KEY": "alice"}


async def run_program(served: Served, folder: Path, *command: str, input: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment_of(served),
        cwd=folder,
    )
    output, _ = await process.communicate(input.encode())
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_the_commands_of_the_reference_run(serve: Serve, scripted: Scripted, tmp_path: Path) -> None:
    script = "set -e -o pipefail\n" + "".join(
        re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    )
    agent = scripted(say("Much."), say("Little."), say("Peu."), tools=[deploy])
    async with serve([agent]) as served:
        output = await run_program(served, tmp_path, "bash", "-s", input=script)
    assert '"text":"Much."' in output
    assert "event: stream.end" in output
    assert '"text":"Peu."' in output


def test_the_reference_names_every_request() -> None:
    text = PAGE.read_text()
    requests = [f"{each.method} {each.path}" for each in native_operations(FEATURE_NAMES)]
    assert [request for request in requests if f"`{request}`" not in text] == []


async def test_the_program_of_the_guide_approves_and_is_safe_to_repeat(
    serve: Serve, scripted: Scripted, tmp_path: Path
) -> None:
    [program] = re.findall(
        r"^```python\n(.*?)^```$", (DOCS / "guides" / "server.md").read_text(), re.MULTILINE | re.DOTALL
    )
    agent = scripted(call("deploy"), say("Deployed."), tools=[deploy])
    async with serve([agent], permissions=Permissions(confirm=["deploy"])) as served, served.client() as client:
        use = "print(run('s', 'Go.', 'k1'))\nprint(run('s', 'Go.', 'k1'))\n"
        assert await run_program(served, tmp_path, sys.executable, "-", input=program + use) == "Deployed.\nDeployed.\n"
        assert len((await client.get("/api/v1/sessions/s/turns")).json()["data"]) == 1
