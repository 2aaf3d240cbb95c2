"""Use a copy of vaka: a library turn with a tool, two commands, and a name of each feature. Prints JSON."""

import asyncio
import contextlib
import io
import json
import sys
from collections.abc import Callable
from functools import partial

import vaka
from vaka.cli.main import main
from vaka.testing.models import ScriptedModel, call, say


@vaka.tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def use_library() -> dict[str, str]:
    agent = vaka.Agent("adder", model=ScriptedModel(call("add", a=2, b=3), say("It is 5.")), tools=[add])
    async with vaka.Runtime("memory:") as runtime:
        session = await runtime.open(agent, id="s", owner="kim")
        answer = await session.run("Add.")
        copy = await runtime.fork("s")
        erased = await runtime.erase(owner="kim")
        used = {f"runtime.{name}": use_name(partial(getattr, runtime, name)) for name in ("memories", "threads")}
    used["vaka.ProjectSource"] = use_name(lambda: vaka.ProjectSource)
    servers = {"mcpServers": {"db": {"command": "true"}}}
    used["Project(mcp=…)"] = use_name(lambda: vaka.Runtime("memory:", project=vaka.Project(mcp=servers)))
    kinds = ",".join(sorted(erased.memories))
    return {"answer": answer.text, "fork": copy, "erased": kinds, **used}


def use_name(use: Callable[[], object]) -> str:
    """Return the type of what a use returns, or its error."""
    try:
        return type(use()).__name__
    except vaka.VakaError as error:
        return str(error)


def use_definitions() -> str:
    """Return the names of the agents in a folder without definitions, or the error."""
    try:
        return ",".join(vaka.load_agents("."))
    except vaka.VakaError as error:
        return str(error)


def run_command(*words: str) -> str:
    """Return what a command writes to stdout, or its error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.suppress(SystemExit):
        main([*words])
    return out.getvalue() or err.getvalue()


results: dict[str, object] = {"path": vaka.__file__, **asyncio.run(use_library())}
results["vaka.load_agents"] = use_definitions()
results["help"] = run_command("--help")
results["run"] = run_command("run", "Hi.", "--model", "scripted:script.jsonl")
results["others"] = [run_command(*words.split()) for words in sys.argv[1:]]
json.dump(results, sys.stdout)
