"""Hooks that keep their payload or decide by JSON, and a turn that runs with hooks."""

import json
from pathlib import Path
from typing import Any

import vaka
from tests.runtime.runtime_fixtures import agent, check_log, merge_options, read_log, runtime
from vaka.config.options import Workspace
from vaka.core.types.message import UserMessage, text_of
from vaka.hooks import Hook
from vaka.runtime.options import Project
from vaka.stores.memory import MemoryStore

RECORD = "cat > payload.$$"
"""A command that keeps its payload and decides nothing."""


@vaka.tool(effect="read")
async def look(at: str = "") -> str:
    """Look at something."""
    if at == "nowhere":
        raise ValueError("there is nothing")
    return f"seen {at}"


def prints(document: dict[str, Any]) -> str:
    """Return a command that prints a JSON document."""
    return f"cat >/dev/null; echo '{json.dumps(document)}'"


def decides(event: str, **output: Any) -> str:
    """Return a command that prints the specific output of an event."""
    return prints({"hookSpecificOutput": {"hookEventName": event, **output}})


async def run_with_hooks(
    folder: Path, model: Any, *hooks: Hook, tools: Any = (look,), prompt: str = "Go.", **options: Any
) -> tuple[list[Any], vaka.Response | None]:
    """Run one turn, and return its log and its response, ``None`` for a turn that failed."""
    store, response = MemoryStore(), None
    defaults = {"project": Project(hooks=hooks), "workspace": Workspace(cwd=str(folder))}
    async with runtime(store, **merge_options(defaults, options)) as rt:
        session = await rt.open(agent(model, *tools), id="s")
        try:
            response = await session.run(prompt)
        except vaka.TurnError:
            response = None
    log = await read_log(store, "s")
    check_log(log)
    return log, response


def payloads(folder: Path) -> list[dict[str, Any]]:
    """Return the payloads that ``RECORD`` has kept, the oldest first."""
    files = sorted(folder.glob("payload.*"), key=lambda file: file.stat().st_mtime_ns)
    return [json.loads(file.read_text()) for file in files]


def prompts_of(model: Any, number: int = -1) -> list[str]:
    return [text_of(m.content) for m in model.prompts[number].messages if isinstance(m, UserMessage)]
