"""A server process that the commands of this folder talk to."""

import json
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import AGENT_FILE, TIMEOUT, Shell, call_line, say_line
from tests.unmeasured import without_coverage

SCRIPTS = {
    "talker": [say_line("Hello."), say_line("Again.")],
    "payer": [call_line("pay", amount=5), say_line("All done.")],
    "hanger": [call_line("hang"), say_line("Never.")],
    "painter": [call_line("colour"), say_line("Painted.")],
    "writer": [say_line("long " * 100_000)],
    "locked": [],
}
AGENTS = "".join(
    f'{name} = vaka.Agent("{name}", tools=tools, middleware=[Careful()], model="scripted:{name}.jsonl")\n'
    for name in SCRIPTS
    if name != "locked"
)


class ServerShell(Shell):
    """Runs commands with the key and the address of a server."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for name, lines in SCRIPTS.items():
            self.write_file(f"{name}.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        self.write_file("agents.py", f"{AGENT_FILE}\n{AGENTS}")
        self.url = ""

    def on_server(self, *words: str, **more: Any) -> Any:
        """Run ``vaka run --server``."""
        return self.vaka("run", *words, "--server", self.url, **more)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerShell]:
    """One ``vaka serve`` for all tests; each uses sessions of its own."""
    shell = ServerShell(tmp_path_factory.mktemp("served"))
    scopes = [word for name in ("runs:read", "runs:write", "approvals:write") for word in ("--scope", name)]
    key = shell.vaka("keys", "create", "--name", "test", *scopes).out.strip()
    shell.env["VAKA_API_KEY"] = key
    words = [word for name in SCRIPTS for word in ("--agent", f"agents.py:{name}")]
    command = [sys.executable, "-m", "vaka", "serve", "--port", "0", *words]
    with subprocess.Popen(
        command, cwd=shell.folder, env=without_coverage(shell.env), stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        shell.url = server.stdout.readline().rpartition(" at ")[2].strip()
        try:
            yield shell
        finally:
            server.terminate()
            server.wait(TIMEOUT)
