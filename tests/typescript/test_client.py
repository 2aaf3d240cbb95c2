"""The tests of the TypeScript client, in Node.js; its size, and what its package contains."""

import gzip
import json
import re
from pathlib import Path

import pytest

from tests.blackbox.js import node
from tests.typescript.client_build import CLIENT, NODE, PACKAGES, ROOT, needs_packages, run

pytestmark = needs_packages

MAX_BYTES = {"index.js": 10_000, "store.js": 7_000}


def run_tests(binary: Path, package: Path, env: dict[str, str] | None = None) -> None:
    run(binary, "--test", *sorted((package / "test").glob("*.test.mjs")), cwd=package, env=env)


def test_the_client_passes_its_tests_in_the_oldest_supported_node(client_package: Path) -> None:
    assert run(NODE, "--version").startswith("v20.")
    run_tests(NODE, client_package)


@pytest.mark.exhaustive
@pytest.mark.timeout(3000)
def test_the_client_passes_its_tests_when_streams_are_cut_at_every_byte(client_package: Path) -> None:
    run_tests(NODE, client_package, {"VAKA_EXHAUSTIVE": "1"})


@pytest.mark.exhaustive
@node.needs_clients
def test_the_client_passes_its_tests_in_a_later_node(client_package: Path) -> None:
    run_tests(node.NODE, client_package)


@pytest.mark.parametrize("entry", MAX_BYTES)
def test_an_entry_stays_small(client_package: Path, entry: str) -> None:
    bundle = run(PACKAGES / ".bin" / "esbuild", client_package / "dist" / entry, "--bundle", "--minify", "--format=esm")
    assert len(gzip.compress(bundle.encode(), 9)) <= MAX_BYTES[entry]
    assert not re.search(r'\bfrom\s*"|\bimport\s*"', bundle), "the client has no dependencies"


def test_every_entry_of_the_package_exists_with_its_types(client_package: Path) -> None:
    manifest = json.loads((CLIENT / "package.json").read_text("utf-8"))
    assert "dependencies" not in manifest
    targets = [target for entry in manifest["exports"].values() for target in entry.values()]
    assert [target for target in targets if not (client_package / target).exists()] == []
    script = client_package / "entries.mjs"
    names = ["@vaka/client", "@vaka/client/store", "@vaka/client/react"]
    script.write_text(
        f"const names = {names};\nfor (const name of names) console.log(Object.keys(await import(name))[0]);"
    )
    assert run(NODE, script, cwd=client_package).split() == ["AgentClient", "OUTPUT_TAIL", "useSession"]


def test_every_version_is_exact() -> None:
    manifest = json.loads((ROOT / "ts" / "package.json").read_text("utf-8"))
    versions = manifest["devDependencies"] | manifest["optionalDependencies"]
    assert [name for name, version in versions.items() if not re.fullmatch(r"\d+\.\d+\.\d+", version)] == []
