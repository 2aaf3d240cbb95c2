"""Run or resume a turn with calls that wait for each other: ``python -m tests.faults.programs.run_file_order PLAN``.

Its one step appends to a file, reads it, appends again and reads again. A person says which lost command has happened.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import msgspec

from tests.faults.crash_run import Plan, open_store
from tests.faults.line_protocol import print_event, print_line
from vaka.agents.react import Agent
from vaka.config.options import Commands, Permissions, Workspace
from vaka.core.types.control import QuestionAsked
from vaka.core.types.errors import NotFound
from vaka.core.types.event import Event
from vaka.runtime.runtime import Runtime
from vaka.testing.crashes import enable_failpoints
from vaka.testing.models import ScriptedModel, call, calls
from vaka.testing.models import say as says
from vaka.tools.builtin import builtin_tools

WORDS = ("one", "two")
"""The word that each command appends."""


def folder_of(plan: Plan) -> Path:
    """Return the folder in which the tools work."""
    return Path(f"{plan.ledger}.files")


def prepare_folder(plan: Plan) -> Path:
    """Create the folder and the script of the commands, which may kill this process before or after it appends."""
    folder = folder_of(plan)
    folder.mkdir(exist_ok=True)
    moment, _, number = plan.die.partition(":")
    kill = f"[ $1 = {WORDS[int(number) - 1]} ] && kill -9 {os.getpid()}" if moment else ":"
    before, after = (kill, ":") if moment == "before" else (":", kill)
    (folder / "append.sh").write_text(f"{before}\necho $1 >> f\n{after}\n")
    return folder


def make_agent() -> Agent:
    step: list[dict[str, object]] = []
    for word in WORDS:
        step += [call("Bash", command=f"sh append.sh {word}"), call("Read", file_path="f")]
    model = ScriptedModel(calls(*step), says("done"))
    return Agent("writer", model=model, tools=builtin_tools(["Bash", "Read"]))


async def answer(person: Runtime, event: Event, written: Sequence[str]) -> None:
    """Say of a lost command whether it has appended its word."""
    if not isinstance(event.data, QuestionAsked):
        return
    happened = any(f"append.sh {word}" in event.data.text for word in written)
    with suppress(NotFound):
        outcome = {"outcome": "happened", "result": "done"} if happened else {"outcome": "did not happen"}
        print_event(await person.answer(event.data.question, outcome))


async def main(plan: Plan) -> None:
    enable_failpoints()
    folder, (store, other) = prepare_folder(plan), (open_store(plan), open_store(plan))
    file = folder / "f"
    written = file.read_text().split() if file.exists() else []
    options: dict[str, Any] = {
        "workspace": Workspace(cwd=str(folder)),
        "permissions": Permissions(mode="bypassPermissions"),
        "commands": Commands(sandbox="off"),
    }
    async with Runtime(store=store, **options) as runtime, Runtime(store=other) as person:
        session = await runtime.open(make_agent(), id=plan.session)
        for pending in await person.decisions(plan.session):
            await answer(person, pending.event, written)
        found = await store.sessions.find(session.id)
        async with aclosing(session.stream("Go.", key="go") if found is None else session.resume()) as events:
            async for event in events:
                print_event(event)
                await answer(person, event, written)
    await store.close()
    await other.close()
    print_line("ended")


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
