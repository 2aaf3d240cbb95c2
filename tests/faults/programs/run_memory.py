"""Run or resume a turn that changes text and working memory: ``python -m tests.faults.programs.run_memory PLAN``."""

import asyncio
import sys
from contextlib import aclosing
from typing import Any

import msgspec

import vaka
from tests.faults.crash_run import Plan, open_store
from tests.faults.line_protocol import print_event, print_line
from vaka.memory import TextMemory, WorkingMemory
from vaka.testing.crashes import enable_failpoints
from vaka.testing.models import ScriptedModel, call
from vaka.testing.models import say as says

NOTES = "/memories/notes.md"
EXPECTED = {
    "notes.md": "top\naa\n\n## Note\n\nfirst\n\n## Note\n\nfirst\n",
    "moved/f.md": "x",
    "": "one\n\none\n\n2",
}
"""The files of the memory after the turn, and under ``""`` the working memory."""
EDIT = "update_working_memory_experimental"


def command(name: str, **given: Any) -> Any:
    return call("memory", command=name, **given)


async def main(plan: Plan) -> None:
    enable_failpoints()
    store = open_store(plan)
    model = ScriptedModel(
        command("create", path=NOTES, file_text="a\n"),
        call("memory_write", file="notes.md", content="first", title="Note"),
        call("memory_write", file="notes.md", content="first", title="Note"),
        command("str_replace", path=NOTES, old_str="a\n", new_str="aa\n"),
        command("insert", path=NOTES, insert_line=0, insert_text="top"),
        command("create", path="/memories/old/f.md", file_text="x"),
        command("create", path="/memories/gone/f.md", file_text="x"),
        command("rename", old_path="/memories/old", new_path="/memories/moved"),
        command("delete", path="/memories/gone"),
        call("update_working_memory", memory="one"),
        call(EDIT, new_memory="one"),
        call(EDIT, new_memory="two"),
        call(EDIT, new_memory="2", search_string="two", update_reason="clarify-existing-memory"),
        says("remembered"),
    )
    memory = [TextMemory(namespace=plan.session), WorkingMemory()]
    agent = vaka.Agent("keeper", model=model, middleware=memory)
    async with vaka.Runtime(store=store) as runtime:
        session = await runtime.open(agent, id=plan.session)
        found = await store.sessions.find(session.id)
        begin = session.stream("Go.", key="go") if found is None else session.resume()
        async with aclosing(begin) as events:
            async for event in events:
                print_event(event)
    await store.close()
    print_line("ended")


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
