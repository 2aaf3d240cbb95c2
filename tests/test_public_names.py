"""What ``import vaka`` offers, and what it costs."""

import importlib
import inspect
import os
import pydoc
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import vaka
from vaka.runtime.options import Options

NAMES = [
    "Agent",
    "Commands",
    "Compaction",
    "Environment",
    "Event",
    "Image",
    "Limits",
    "LuauAgent",
    "LuauTool",
    "Middleware",
    "Models",
    "NetworkAccess",
    "Permissions",
    "Project",
    "ProjectSource",
    "Response",
    "Runtime",
    "Scripts",
    "Session",
    "Storage",
    "SubAgent",
    "SubAgents",
    "Suspended",
    "Text",
    "ToolCall",
    "ToolContext",
    "ToolResult",
    "ToolSelection",
    "Turn",
    "TurnError",
    "TurnStream",
    "VakaError",
    "Workspace",
    "__version__",
    "load_agents",
    "run",
    "run_sync",
    "tool",
]
HEAVY = {"httpx2", "jsonschema_rs", "click", "yaml", "sqlite3", "asyncpg", "msgspec"}


def modules(program: str) -> set[str]:
    """Return the modules a program has loaded at its end; without coverage, which loads some itself."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    command = [sys.executable, "-c", f"{program}; import sys; print(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return set(done.stdout.split())


def test_the_public_names_are_these() -> None:
    assert vaka.__all__ == NAMES
    assert dir(vaka) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_name_leads_to_something_with_a_docstring(name: str) -> None:
    assert getattr(vaka, name).__doc__


FACES = (
    "vaka",
    "vaka.agentsdk",
    "vaka.content",
    "vaka.errors",
    "vaka.events",
    "vaka.files",
    "vaka.genx",
    "vaka.luau",
    "vaka.lumos",
    "vaka.memory",
    "vaka.middleware",
    "vaka.models",
    "vaka.net",
    "vaka.policy",
    "vaka.sandbox",
    "vaka.testing",
    "vaka.threads",
    "vaka.tools",
    "vaka.transformers",
)


def public_callables(face: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the functions, classes and public methods of a face, with their names."""
    module = importlib.import_module(face)
    for name in getattr(module, "__all__", dir(module)):
        value = getattr(module, name)
        if callable(value):
            yield name, value
        if inspect.isclass(value):
            members = inspect.getmembers(value, callable)
            yield from ((f"{name}.{member}", method) for member, method in members if not member.startswith("_"))


@pytest.mark.parametrize("face", FACES)
def test_signatures_show_no_address_of_a_sentinel(face: str) -> None:
    shown = {}
    for name, value in public_callables(face):
        try:
            shown[name] = str(inspect.signature(value))
        except (TypeError, ValueError):  # an alias of a type has no signature
            continue
    assert {name: text for name, text in shown.items() if "<object object" in text or "Unset object" in text} == {}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "__version__"])
def test_help_describes_every_name(name: str) -> None:
    assert name in pydoc.render_doc(getattr(vaka, name))


def test_the_options_of_a_runtime_are_shown_with_their_defaults() -> None:
    for kind in (vaka.Runtime, Options):
        shown = str(inspect.signature(kind))
        assert "\n    store: Store | str = 'memory:',\n" in shown
        assert "\n    limits: Limits = Limits(),\n" in shown
        assert "\n    storage: Storage = Storage(),\n" in shown
    assert "\n    durability: Literal['power', 'process'] = 'power',\n" in str(inspect.signature(vaka.Storage))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Agnet'"):
        vaka.Agnet  # noqa: B018  # the access is the test


def test_importing_vaka_loads_nothing_it_does_not_need() -> None:
    assert HEAVY & modules("import vaka") == set()


def test_making_an_agent_loads_no_model_store_or_schema_library() -> None:
    assert (HEAVY - {"msgspec"}) & modules("import vaka; vaka.Agent('a', tools=[])") == set()


@pytest.mark.parametrize(
    "face", ["files", "luau", "memory", "middleware", "models", "net", "policy", "sandbox", "threads", "tools"]
)
def test_every_name_of_a_lazy_module_can_be_imported(face: str) -> None:
    module = importlib.import_module(f"vaka.{face}")
    assert [name for name in module.__all__ if getattr(module, name) is None] == []
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        module.missing  # noqa: B018  # the access is the test
