"""A session as a terminal shows it: how much is rendered while an answer and the output of a command arrive."""

import asyncio
from typing import Any

import click
import pytest

from vaka import Agent, Runtime, ToolContext, tool
from vaka.cli.display.call_summary import declared_by
from vaka.cli.display.rich_renderer import RichRenderer
from vaka.cli.display.running import MAX_OUTPUT_LENGTH
from vaka.cli.display.view import SessionView
from vaka.config.options import Permissions
from vaka.core.types.event import Event
from vaka.core.types.ids import CallId
from vaka.core.types.message import Text, ToolResult
from vaka.models.scripted import Scripted
from vaka.tools import ToolTraits

CODE = "".join(f"line_{number} = {number}\n" for number in range(2000))


class CountingRenderer(RichRenderer):
    """Counts the characters of Markdown that it renders."""

    rendered = 0

    def markdown(self, source: str, *, continued: bool = False) -> str:
        self.rendered += len(source)
        return super().markdown(source, continued=continued)


async def show_run(agent: Agent[Any], view: SessionView) -> str:
    """Run a turn; return the text for the scroll-back."""
    shown: list[str] = []
    async with Runtime() as runtime:
        session = await runtime.open(agent)
        async for event in session.stream("Go."):
            shown.append(view.take(event))
            open_text = view.answer.open_block
            assert len(open_text) < 4100, "what is drawn again with each delta is bounded"
    return "".join(shown)


async def test_a_call_is_shown_by_the_argument_that_its_tool_declares() -> None:
    @tool(traits=ToolTraits(writes=True, paths=("name",)))
    def save(text: str, name: str) -> str:
        """Save a text."""
        return "saved"

    answers: list[Any] = [{"tool_calls": [{"name": "save", "arguments": {"text": "x", "name": "a.md"}}]}, {"text": ""}]
    agent = Agent("writer", model=Scripted(answers), tools=[save])
    known = RichRenderer(80, theme="none", declared=declared_by(agent))
    assert "save a.md\n" in click.unstyle(await show_run(agent, SessionView(known)))
    agent = Agent("writer", model=Scripted(answers), tools=[save])
    unknown = RichRenderer(80, theme="none")
    assert "save text: x, name: a.md\n" in click.unstyle(await show_run(agent, SessionView(unknown)))


@pytest.mark.parametrize("size", [11, 100_000])
async def test_a_long_code_block_is_rendered_once(size: int) -> None:
    text = f"Before.\n\n```py\n{CODE}```\n\nAfter."
    chunks = [text[at : at + size] for at in range(0, len(text), size)]
    renderer = CountingRenderer(80, theme="none")
    shown = await show_run(Agent("coder", model=Scripted([{"chunks": chunks}])), SessionView(renderer))
    assert renderer.rendered < 1.1 * len(text)
    assert "".join(f"  {line}\n" for line in CODE.splitlines()) in shown


@tool
async def noisy(context: ToolContext) -> str:
    """Print a long line in pieces, and a progress bar."""
    for _ in range(100):
        context.emit("x" * 50_000)
        await asyncio.sleep(0)
    context.emit("\n10%\r50%\r100%")
    await asyncio.sleep(0)
    return "y" * 5_000_000 + "\nlast"


async def test_of_a_huge_line_of_a_tool_a_part_is_kept_and_shown() -> None:
    view = SessionView(RichRenderer(80, theme="none"))
    model = Scripted([{"tool_calls": [{"name": "noisy"}]}, {"text": "z" * 5_000_000}])
    tails: list[list[str]] = []
    shown = ""
    events: list[Event] = []
    async with Runtime(permissions=Permissions(mode="bypassPermissions")) as runtime:
        session = await runtime.open(Agent("noisy", model=model, tools=[noisy]))
        async for event in session.stream("Go."):
            shown += view.take(event)
            events += [event] if event.seq else []
            tails += [running.tail() for running in view.running.values()]
    assert max(len(line) for tail in tails for line in tail) == MAX_OUTPUT_LENGTH
    assert tails[-1][-1] == "100%"
    assert len(shown) < 60_000
    assert "4960000 more characters" in " ".join(shown.split())
    again = SessionView(RichRenderer(80, theme="none"))
    assert "… the beginning of a text of 5000000 bytes" in "".join(again.take(event) for event in events)


async def test_a_refused_host_is_named_below_the_call_with_what_would_allow_it() -> None:
    hosts = [
        {"host": "a.example", "rule": "Bash(domain:a.example)", "trusted_host": ""},
        {"host": "10.0.0.1:81", "rule": "Bash(domain:10.0.0.1:81)", "trusted_host": "10.0.0.1:81"},
        {"host": "b.example", "rule": "", "trusted_host": ""},
    ]

    @tool(effect="read")
    def fetch() -> ToolResult:
        """Fetch."""
        return ToolResult(call=CallId(""), content=(Text(text="done"),), value={"refused_hosts": hosts})

    model = Scripted([{"tool_calls": [{"name": "fetch", "arguments": {}}]}, {"text": "Done."}])
    shown = await show_run(Agent("a", model=model, tools=[fetch]), SessionView(RichRenderer(200, theme="none")))
    assert (
        "the sandbox refused the network to a.example; commands reach it with --allow 'Bash(domain:a.example)'\n"
        "the sandbox refused the network to 10.0.0.1:81; commands reach it with --allow 'Bash(domain:10.0.0.1:81)' "
        "--allow-host 10.0.0.1:81\n"
        "the sandbox refused the network to b.example: a rule denies it\n"
    ) in click.unstyle(shown)
