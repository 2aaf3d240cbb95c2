"""Each page about an older system names only what exists, and every name of its module."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
SYSTEMS = ("agentsdk", "genx", "lumos")
NAME = re.compile(r"`@?(vaka(?:\.\w+)+)")


def find_value(name: str) -> Any:
    """Return what a dotted name leads to: a module, one of its names, or a member of a class."""
    value: Any = importlib.import_module("vaka")
    for at, part in enumerate(name.split(".")[1:], 2):
        if not hasattr(value, part):
            importlib.import_module(".".join(name.split(".")[:at]))
        value = getattr(value, part)
    return value


def names_of(system: str) -> list[str]:
    """Return the dotted names of vaka in the page about a system."""
    return NAME.findall((GUIDES / f"migrating-from-{system}.md").read_text("utf-8"))


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_new_name_of_a_page_exists(system: str) -> None:
    names = names_of(system)
    assert len(names) > 10
    missing = []
    for name in names:
        try:
            find_value(name)
        except (AttributeError, ImportError):
            missing.append(name)
    assert missing == []


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_page_maps_every_name_of_its_module(system: str) -> None:
    module = importlib.import_module(f"vaka.{system}")
    public = getattr(module, "__all__", [name for name in dir(module) if not name.startswith("_")])
    shown = {name.split(".")[2] for name in names_of(system) if name.startswith(f"vaka.{system}.")}
    assert sorted({*public} - shown) == []


def test_the_page_about_agentsdk_lists_every_option() -> None:
    text = (GUIDES / "migrating-from-agentsdk.md").read_text("utf-8")
    options = importlib.import_module("vaka.agentsdk").Options
    assert [name for name in options.__struct_fields__ if f"`{name}`" not in text and name != "agent"] == []


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_front_page_and_the_page_about_python_lead_to_each_page(system: str) -> None:
    readme = (GUIDES.parents[1] / "README.md").read_text("utf-8")
    python = (GUIDES / "python-api.md").read_text("utf-8")
    assert f"(docs/guides/migrating-from-{system}.md)" in readme
    assert f"(migrating-from-{system}.md)" in python
