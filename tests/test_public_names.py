"""What ``import vaka`` offers, and what it costs."""

import subprocess
import sys

import pytest

import vaka

NAMES = [
    "__version__", "Agent", "Allow", "Answer", "Ask", "Block", "Cursor", "Deny", "Event", "Limits", "Middleware",
    "Options", "Prompt", "Request", "Response", "Runtime", "Session", "ToolCall", "ToolContext", "ToolResult",
    "VakaError", "from_functions", "run", "run_sync", "tool",
]  # fmt: skip
HEAVY = {"httpx2", "jsonschema_rs", "click", "yaml", "sqlite3", "asyncpg", "msgspec"}


def test_the_public_names_are_these() -> None:
    assert vaka.__all__ == NAMES
    assert dir(vaka) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_leads_to_something_with_a_docstring(name: str) -> None:
    assert getattr(vaka, name).__doc__


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Agnet'"):
        vaka.Agnet  # noqa: B018  # the access is the test


def test_importing_vaka_loads_nothing_it_does_not_need() -> None:
    program = "import sys, vaka; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stdout.split()) == set()


def test_making_an_agent_loads_no_model_store_or_schema_library() -> None:
    program = "import sys, vaka; vaka.Agent('a', tools=[]); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (HEAVY - {"msgspec"}) & set(done.stdout.split()) == set()
