"""Luau scripts as the tools and the agent of ``vaka run``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import RunningCommand, Shell, call_line, say_line

WEATHER = """--!strict
-- Tell the weather of a city,
-- without a look at the sky.
function invoke(ctx, args)
    return { city = args.city, rain = true }
end
"""

MONEY = '''
import vaka


@vaka.tool
def pay(amount: int) -> str:
    """Pay an amount."""
    with open("ledger", "a") as ledger:
        ledger.write(f"{amount}\\n")
    return f"paid {amount}"


@vaka.tool(effect="read")
def gate(path: str) -> str:
    """Wait for a writer of a pipe."""
    with open(path) as pipe:
        return pipe.read()
'''

STEPS = """
-- Pay twice, and wait in between.
function invoke(ctx, args)
    local first = ctx.invoke("pay", { amount = 1 })
    local word = ctx.invoke("gate", { path = "pipe" })
    local second = ctx.invoke("pay", { amount = 2 })
    return { first, word, second }
end
"""

AGENT = """
function on_input(ctx, input)
    ctx.agent.state.count = (ctx.agent.state.count or 0) + 1
    ctx.emit({ text = `{ctx.agent.state.count}: {input.text}`, eof = true })
end
"""


def test_a_script_is_a_tool_named_by_its_file_and_described_by_its_comment(shell: Shell) -> None:
    shell.write_file("weather.luau", WEATHER)
    (tool,) = shell.vaka("tools", "list", "--tools", "weather.luau", "--json").json["tools"]
    assert {key: tool[key] for key in ("name", "description", "effect")} == {
        "name": "weather",
        "description": "Tell the weather of a city, without a look at the sky.",
        "effect": "resume",
    }
    done = shell.vaka("tools", "call", "weather", '{"city": "Hilo"}', "--tools", "weather.luau", "-q")
    assert (done.code, done.json["result"]) == (0, {"city": "Hilo", "rain": True})


def test_a_model_calls_a_script_beside_other_tools(shell: Shell) -> None:
    shell.write_file("weather.luau", WEATHER)
    shell.write_script(call_line("weather", city="Hilo"), call_line("add", a=1, b=2), say_line("It rains."))
    done = shell.run("Weather?", "--tools", "weather.luau", "--session", "s", "--output", "json")
    assert (done.code, done.json["text"]) == (0, "It rains.")
    assert [call["name"] for call in done.json["tool_calls"]] == ["weather", "add"]
    results = [event["data"]["result"] for event in shell.events("s") if event["type"] == "tool.completed"]
    assert [result["value"] for result in results] == [{"city": "Hilo", "rain": True}, 3]


def test_a_script_finds_its_libraries_beside_its_folder(shell: Shell) -> None:
    shell.write_file("tools/greet.luau", "local words = require('words') function invoke() return words.hello end")
    shell.write_file("libs/words.luau", "return { hello = 'Aloha' }")
    done = shell.vaka("tools", "call", "greet", "--tools", "tools/greet.luau", "-q")
    assert done.json["result"] == "Aloha"


def test_a_python_file_can_define_script_tools(shell: Shell) -> None:
    shell.write_file("weather.luau", WEATHER)
    shell.write_file("all.py", "import vaka\nfrom vaka import LuauTool\nsky = LuauTool('weather.luau', name='sky')\n")
    done = shell.vaka("tools", "call", "sky", '{"city": "Hana"}', "--tools", "all.py", "-q")
    assert done.json["result"]["city"] == "Hana"


@pytest.mark.parametrize("option", ["--tools", "--agent"])
def test_a_script_that_does_not_compile_is_a_configuration_error(shell: Shell, option: str) -> None:
    shell.write_file("wrong.luau", "print('a')\nlocal = 1")
    model = shell.write_script(say_line("Never said."))
    for file, why in (("wrong.luau", "error: wrong.luau:2: "), ("absent.luau", "error: absent.luau: there is no")):
        done = shell.vaka("run", "Go.", option, file, "--model", model)
        assert (done.code, done.out) == (3, "")
        assert done.err.startswith(why)


def test_clashing_or_invalid_names_are_configuration_errors(shell: Shell) -> None:
    shell.write_file("a/weather.luau", WEATHER)
    shell.write_file("b/weather.luau", WEATHER)
    shell.write_file("b/sky watch.luau", WEATHER)
    clash = shell.vaka("tools", "list", "--tools", "a/weather.luau", "--tools", "b/weather.luau")
    assert (clash.code, clash.err) == (3, "error: a/weather.luau, b/weather.luau: two tools are named 'weather'\n")
    assert "got 'sky watch'" in shell.vaka("tools", "list", "--tools", "b/sky watch.luau").err


def test_a_script_is_an_agent_that_needs_no_model_and_remembers(shell: Shell) -> None:
    shell.write_file("count.luau", AGENT)
    answers = [shell.vaka("run", word, "--agent", "count.luau", "--session", "s").out for word in ("one", "two")]
    assert answers == ["1: one\n", "2: two\n"]
    assert json.loads(shell.vaka("sessions", "list", "--json").out)["sessions"][0]["agent"] == "count"


def test_an_agent_that_is_a_script_can_be_made_in_a_python_file(shell: Shell) -> None:
    shell.write_file("count.luau", AGENT)
    shell.write_file("made.py", "import vaka\nagent = vaka.LuauAgent('made', 'count.luau')\n")
    assert shell.vaka("run", "one", "--agent", "made.py").out == "1: one\n"


def start_run(shell: Shell, *words: str) -> RunningCommand:
    """Start a turn in the background with the model that the words name, if any."""
    command = [sys.executable, "-m", "vaka", "run", *words, "--output", "stream-json"]
    process = subprocess.Popen(
        command,
        cwd=shell.folder,
        env=shell.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    return RunningCommand(process)


def test_a_run_killed_inside_a_script_resumes_and_pays_once(shell: Shell) -> None:
    shell.write_file("money.py", MONEY)
    shell.write_file("steps.luau", STEPS)
    model = shell.write_script(call_line("steps"), say_line("All paid."))
    pipe = shell.folder / "pipe"
    os.mkfifo(pipe)
    more = ["--tools", "money.py", "--tools", "steps.luau", "--model", model, "--session", "s"]
    first = start_run(shell, "Pay.", *more)
    with pipe.open("w"):  # opens when the script waits in `gate`
        first.process.kill()
        first.wait_result()
    second = start_run(shell, "--resume", *more)
    pipe.write_text("go", encoding="utf-8")
    done = second.wait_result()
    assert (done.code, done.lines[-1]["text"]) == (0, "All paid.")
    assert (shell.folder / "ledger").read_text(encoding="utf-8") == "1\n2\n"
    (result,) = [
        event["data"]["result"]["value"]
        for event in shell.events("s")
        if event["type"] == "tool.completed" and event["data"]["result"]["call"] == "call_1"
    ]
    assert result == ["paid 1", "go", "paid 2"]


PROBE = """
function invoke(ctx)
    return ctx.generate("scripted:other.jsonl", "Hi")
end
"""


def test_scripts_of_other_projects_and_scripts_of_untrusted_runs_are_confined(shell: Shell) -> None:
    shell.write_script(*[say_line("trusted") | {"agent": name} for name in ("own", "elsewhere")], name="other.jsonl")
    shell.write_file("own.luau", PROBE)
    elsewhere = shell.folder.parent / "elsewhere.luau"
    elsewhere.write_text(PROBE, "utf-8")

    def call(*words: str) -> str:
        tool = Path(words[0]).stem
        return json.dumps(shell.vaka("tools", "call", tool, "--tools", *words, "-q").json["result"])

    assert call("own.luau") == '"trusted"'
    for words in (("own.luau", "--untrusted"), (str(elsewhere),)):
        assert "this script may ask the model 'default' only" in call(*words)
    assert call(str(elsewhere), "--add-dir", str(elsewhere.parent)) == '"trusted"'


BUYER = '''
import asyncio

import vaka
from vaka.testing.models import FunctionModel


async def answer(prompt):
    words = prompt.messages[-1].content[0].text
    with open("ledger", "a") as ledger:
        ledger.write(f"{words}\\n")
    if words == "wait":
        await asyncio.to_thread(lambda: open("pipe").read())
    return '{"a": 1}' if words == "fits" else {"chunks": ["o", "k"]}


def look() -> str:
    """Look."""
    with open("ledger", "a") as ledger:
        ledger.write("look\\n")
    return "seen"


model = FunctionModel(answer)
agent = vaka.LuauAgent(
    "buyer", "buyer.luau", model=model, tools=[vaka.tool(effect="read")(look), vaka.Agent("helper", model=model)]
)
'''

PURCHASES = """
function on_input(ctx, input)
    local said = { ctx.generate("default", "whole") }
    for piece in ctx.generate_stream("default", "pieces") do table.insert(said, piece) end
    local helper = ctx.create_agent("helper")
    helper:send("help")
    table.insert(said, helper:collect())
    table.insert(said, ctx.invoke("look", {}))
    table.insert(said, ctx.generate_json("default", "fits", { type = "object" }).a)
    ctx.generate("default", "wait")
    ctx.emit({ text = table.concat(said, " "), eof = true })
end
"""


def test_what_a_killed_script_has_paid_for_is_not_paid_for_again(shell: Shell) -> None:
    shell.write_file("buyer.py", BUYER)
    shell.write_file("buyer.luau", PURCHASES)
    pipe = shell.folder / "pipe"
    os.mkfifo(pipe)
    first = start_run(shell, "Buy.", "--agent", "buyer.py", "--session", "s")
    with pipe.open("w"):  # opens when the model waits for it
        first.process.kill()
        first.wait_result()
    second = start_run(shell, "--resume", "--agent", "buyer.py", "--session", "s")
    pipe.write_text("go", encoding="utf-8")
    done = second.wait_result()
    assert (done.code, done.lines[-1]["text"]) == (0, "ok o k ok seen 1")
    paid = (shell.folder / "ledger").read_text(encoding="utf-8").split()
    assert paid == ["whole", "pieces", "help", "look", "fits", "wait", "wait"]
