"""The static files of the console."""

import hashlib
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest

from tests.server.conftest import Serve
from vaka.agents.react import Agent
from vaka.config.server_tables import FEATURE_NAMES
from vaka.server.settings import ServerSettings
from vaka.testing import ScriptedModel

ROOT = Path(__file__).parents[2]
ASSETS = Path(str(files("vaka.server"))) / "console_assets"


def echo_agent() -> Agent:
    return Agent("echo", model=ScriptedModel())


async def test_the_index_is_asked_for_each_time_and_assets_are_kept_for_ever(serve: Serve) -> None:
    async with serve([echo_agent()]) as server, server.client("") as client:
        index = await client.get("/console/")
        assert index.status_code == 200
        assert index.headers["cache-control"] == "no-cache"
        policy = index.headers["content-security-policy"]
        assert "script-src 'self'; style-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert index.headers["x-content-type-options"] == "nosniff"
        assert index.headers["referrer-policy"] == "no-referrer"
        assert (await client.get("/console/chat/some%2Fsession")).text == index.text
        unchanged = await client.get("/console/", headers={"If-None-Match": index.headers["etag"]})
        assert (unchanged.status_code, unchanged.content) == (304, b"")

        manifest = msgspec.json.decode((ASSETS / "manifest.json").read_bytes(), type=dict[str, str])
        for name in [name for name in manifest if name.startswith("assets/")]:
            assert f"/console/{name}" in index.text
            asset = await client.get(f"/console/{name}")
            assert asset.headers["cache-control"] == "public, max-age=31536000, immutable"
            assert asset.headers["content-encoding"] == "gzip"
            assert asset.content == (ASSETS / name).read_bytes()
            plain = await client.get(f"/console/{name}", headers={"Accept-Encoding": "identity"})
            assert plain.content == asset.content
            assert "content-encoding" not in plain.headers
        assert (await client.get("/console/assets/..%2Fmanifest.json")).status_code == 404
        assert (await client.get("/console")).headers["location"] == "/console/"
        assert (await client.post("/console/")).status_code == 405


async def test_the_licences_of_the_packages_in_the_bundle_go_with_it(serve: Serve) -> None:
    packages = msgspec.json.decode((ROOT / "ts" / "console" / "package.json").read_bytes())["dependencies"]
    async with serve([echo_agent()]) as server, server.client("") as client:
        licenses = await client.get("/console/licenses.txt")
        assert licenses.headers["content-type"] == "text/plain; charset=utf-8"
        assert [name for name, version in packages.items() if f"\n{name} {version} (" not in licenses.text] == []


async def test_the_index_has_no_inline_script_and_no_address_of_another_host(serve: Serve) -> None:
    index = (ASSETS / "index.html").read_text()
    assert index.count("<script") == index.count('<script type="module" src="/console/assets/')
    assert "<style" not in index
    addresses = index.replace("http://www.w3.org/2000/svg", "")
    assert "http:" not in addresses
    assert "https:" not in addresses


async def test_without_the_feature_there_is_no_console(serve: Serve) -> None:
    settings = ServerSettings(features=frozenset(FEATURE_NAMES) - {"ui"})
    async with serve([echo_agent()], settings=settings) as server, server.client("") as client:
        assert (await client.get("/console/")).status_code == 404


def test_the_manifest_names_every_file_with_its_digest() -> None:
    manifest = msgspec.json.decode((ASSETS / "manifest.json").read_bytes(), type=dict[str, str])
    built = {path.relative_to(ASSETS).as_posix(): path for path in ASSETS.rglob("*") if path.is_file()}
    del built["manifest.json"]
    assert manifest == {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in built.items()}


def test_the_built_files_are_those_of_the_sources() -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    subprocess.run(["scripts/ts_packages.sh"], cwd=ROOT, check=True)
    subprocess.run(["npm", "run", "--silent", "check"], cwd=ROOT / "ts" / "console", check=True)
