"""What ``import vaka`` offers, and what it costs."""

import importlib
import os
import subprocess
import sys

import pytest

import vaka

NAMES = [
    "Agent", "Allow", "Answer", "Ask", "Busy", "ClientTool", "Compaction", "Cursor", "Deny", "Event",
    "FactExtraction", "Image", "Limits", "LuauAgent", "LuauTool", "MatchAgent", "MemoryConsolidation", "Middleware",
    "ModeContext", "Options", "PermissionRequest", "ProjectSource", "Prompt", "QuitTools", "Reject", "Request",
    "Response", "Route", "Runtime", "ScriptError", "ScriptLimits", "SemanticMemory", "Session", "StreamingAgent",
    "SubAgent", "SubAgents", "Suspended", "Text", "TextMemory", "TokenStats", "ToolCall", "ToolContext",
    "ToolResult", "ToolWorkspace", "Turn", "TurnError", "TurnStream", "VakaError", "WorkingMemory", "__version__",
    "load_agents", "run", "run_sync", "tool",
]  # fmt: skip
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


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Agnet'"):
        vaka.Agnet  # noqa: B018  # the access is the test


def test_importing_vaka_loads_nothing_it_does_not_need() -> None:
    assert HEAVY & modules("import vaka") == set()


def test_making_an_agent_loads_no_model_store_or_schema_library() -> None:
    assert (HEAVY - {"msgspec"}) & modules("import vaka; vaka.Agent('a', tools=[])") == set()


@pytest.mark.parametrize("face", ["files", "memory", "middleware", "models", "net", "policy", "sandbox", "tools"])
def test_every_name_of_a_lazy_module_can_be_imported(face: str) -> None:
    module = importlib.import_module(f"vaka.{face}")
    assert [name for name in module.__all__ if getattr(module, name) is None] == []
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        module.missing  # noqa: B018  # the access is the test
