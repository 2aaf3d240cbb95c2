import json
import re
from importlib.metadata import distribution
from pathlib import Path

import pytest

import pyluau

# Crates that take part in the build and are not compiled into the extension.
BUILD_ONLY = """
    autocfg cc find-msvc-tools getrandom heck jobserver luau0-src pkg-config proc-macro2 pyluau pyo3-build-config
    pyo3-macros pyo3-macros-backend quote r-efi shlex syn target-lexicon unicode-ident version_check
"""
FOLDER = Path(__file__).parent.parent


def test_the_version_is_that_of_the_distribution() -> None:
    assert pyluau.__version__ == distribution("pyluau").version


def test_the_licences_of_what_is_compiled_in_are_part_of_the_distribution() -> None:
    files = [file for file in distribution("pyluau").files or [] if "licenses" in file.parts]
    texts = "\n".join(file.locate().read_text("utf-8") for file in files)
    assert {file.name for file in files} >= {"LICENSE", "Luau.txt", "Lua.txt", "mlua.txt", "crates.txt"}
    for holder in ("Roblox Corporation", "Lua.org, PUC-Rio", "mlua", "PyO3"):
        assert holder in texts


def test_the_licence_of_every_crate_is_there() -> None:
    (bill,) = [file for file in distribution("pyluau").files or [] if file.name == "pyluau.cyclonedx.json"]
    crates = {component["name"] for component in json.loads(bill.locate().read_text("utf-8"))["components"]}
    named = set(
        re.findall(r"^([\w-]+) [\d.]+ \(", (FOLDER / "licenses" / "crates.txt").read_text("utf-8"), re.MULTILINE)
    )
    assert "mlua" in crates
    assert crates - set(BUILD_ONLY.split()) - named == set()


@pytest.mark.parametrize("name", pyluau.__all__)
def test_the_readme_names_everything_that_is_public(name: str) -> None:
    assert name in (FOLDER / "README.md").read_text("utf-8")
