"""Agents with the GenX face: the loop of ``input`` and ``next``, and the contract of each method."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, collect, runtime, wait_until
from vaka.config.options import Models
from vaka.content import Audio, Document, Image
from vaka.core.ports.model import Chunk, Prompt, TextChunk
from vaka.core.types.errors import Busy, Closed, InvalidInput, NotFound, Suspended, TurnError
from vaka.core.types.ids import SessionId
from vaka.core.types.progress import ToolCompleted, ToolFailed
from vaka.genx import (
    AgentEvent,
    AgentEventType,
    Blob,
    Demultiplexer,
    GenxAgent,
    GenxRuntime,
    QuitTools,
    route_agent_event,
)
from vaka.genx.genx_agent import to_content
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, calls, fail, say, stall


@vaka.tool(effect="read")
async def look(at: str = "") -> str:
    """Look at something."""
    return f"seen {at}"


@vaka.tool(effect="read")
async def goodbye() -> str:
    """End the conversation."""
    return "waved"


class Gate:
    """A tool that waits until it is opened."""

    def __init__(self) -> None:
        self.entered, self.opened = asyncio.Event(), asyncio.Event()

    def tool(self) -> Any:
        @vaka.tool(effect="read")
        async def wait() -> str:
            """Wait."""
            self.entered.set()
            await self.opened.wait()
            return "opened"

        return wait


async def start(rt: vaka.Runtime, *lines: Any, tools: Iterable[Any] = (look,), **more: Any) -> GenxAgent:
    made = agent(ScriptedModel(*lines), *tools, **more)
    return await GenxRuntime(rt).new_agent(made, state_id="s")


def types(events: Iterable[AgentEvent]) -> list[str]:
    """Return the types of events, chunks that only end a stream left out."""
    return [event.type.value for event in events if not event.chunk or event.chunk.part]


def text_of_chunks(events: Iterable[AgentEvent]) -> str:
    return "".join(str(event.chunk.part) for event in events if event.chunk is not None)


async def test_the_event_loop_of_genx_runs_line_by_line() -> None:
    """The loop of the GenX document, with its prints collected."""
    lines = iter(["再见"])
    shown: list[str] = []
    async with runtime() as rt:
        assistant = await start(
            rt,
            call("look", at="山"),
            say("你好！"),
            call("goodbye"),
            say("再见。"),
            tools=[look, goodbye],
            middleware=[QuitTools("tool:goodbye")],
        )

        await assistant.input(["你好！"])
        while True:
            event = await assistant.next()
            match event.type:
                case AgentEventType.CHUNK:
                    assert event.chunk is not None
                    shown.append(f"[{event.agent_state_id}] {event.chunk.part}" if event.chunk.part else "")
                case AgentEventType.EOF:
                    shown.append("> ")
                    await assistant.input([next(lines)])
                case AgentEventType.CLOSED:
                    break
                case AgentEventType.TOOL_START:
                    assert event.tool_call is not None
                    shown.append(f"[Tool: {event.tool_call.func_call.name} 开始]")
                case AgentEventType.TOOL_DONE:
                    assert event.tool_call is not None
                    shown.append(f"[Tool: {event.tool_call.func_call.name} 完成]")
                case AgentEventType.TOOL_ERROR:
                    shown.append(f"[Tool 错误: {event.tool_error}]")
                case AgentEventType.INTERRUPTED:
                    break

        assert [line for line in shown if line] == [
            "[Tool: look 开始]",
            "[Tool: look 完成]",
            "[s] 你好！",
            "> ",
            "[Tool: goodbye 开始]",
            "[Tool: goodbye 完成]",
            "[s] 再见。",
        ]
        assert (event.phase, await assistant.state.is_finished()) == ("finished", True)
        assert await assistant.next() is await assistant.next()
        assert (await assistant.next()).type == "closed"
        with pytest.raises(Closed, match="agent: closed"):
            await assistant.input("Still there?")
        with pytest.raises(Closed, match="agent: closed"):
            await assistant.revert()
        restored = await GenxRuntime(rt, agents=[assistant.definition]).restore_agent("s")
        assert (await restored.next()).type == "closed"


async def test_next_blocks_after_eof_until_the_next_input() -> None:
    async with runtime() as rt:
        assistant = await start(rt, say("One."), say("Two."))
        waiting = asyncio.create_task(assistant.next())
        await asyncio.sleep(0)
        assert not waiting.done()
        await assistant.input("Hi.")
        first = [await waiting, *await assistant.run_until_eof()]
        assert types(first) == ["chunk", "eof"]
        waiting = asyncio.create_task(assistant.next())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()  # no second eof
        waiting.cancel()
        await asyncio.wait([waiting])
        assert text_of_chunks(await assistant.run_until_eof("Again.")) == "Two."
        assert await assistant.format_history() == "[user]: Hi.\n[model]: One.\n[user]: Again.\n[model]: Two."
        assert (assistant.state_id, assistant.state.id, assistant.def_) == ("s", "s", assistant.definition)


async def test_a_cancelled_next_loses_no_event() -> None:
    gate = Gate()
    async with runtime() as rt:
        assistant = await start(rt, call("wait"), say("Done."), tools=[gate.tool()])
        await assistant.input("Go.")
        assert (await assistant.next()).type == "tool_start"
        waiting = asyncio.create_task(assistant.next())
        await gate.entered.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        gate.opened.set()
        assert types(await assistant.run_until_eof()) == ["tool_done", "chunk", "eof"]


async def test_an_interrupt_ends_the_round_and_a_new_input_goes_on() -> None:
    gate = Gate()
    async with runtime() as rt:
        assistant = await start(rt, call("wait"), say("Here."), tools=[gate.tool()])
        await assistant.interrupt()  # nothing runs
        await assistant.input("Go.")
        await gate.entered.wait()
        await assistant.interrupt()
        events = await assistant.run_until_eof()
        assert types(events) == ["tool_start", "tool_error", "interrupted"]
        assert events[-1].is_terminal
        assert await assistant.next() is await assistant.next() is events[-1]
        assert types(await assistant.run_until_eof("And now?")) == ["chunk", "eof"]


async def test_the_text_of_an_interrupted_round_stays_in_the_conversation() -> None:
    class Storyteller:
        """A model that never comes to an end."""

        name = "storyteller"

        async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
            yield TextChunk("Once upon ")
            await asyncio.Event().wait()

    async with runtime() as rt:
        teller = await GenxRuntime(rt).new_agent(agent(Storyteller()), state_id="s")
        await teller.input("Tell a story.")
        assert text_of_chunks([await teller.next()]) == "Once upon "
        await teller.interrupt()
        events = await teller.run_until_eof()
        assert [event.type.value for event in events] == ["chunk", "interrupted"]
        assert events[0].chunk is not None
        assert events[0].chunk.ctrl is not None
        assert events[0].chunk.ctrl.end_of_stream
        assert await teller.format_history() == "[user]: Tell a story.\n[model]: Once upon "


async def test_an_interrupt_that_was_not_read_does_not_end_the_next_round() -> None:
    async with runtime() as rt:
        assistant = await start(rt, stall(), say("Here."))
        await assistant.input("One.")
        await assistant.interrupt()
        assert types(await assistant.run_until_eof("Two.")) == ["chunk", "eof"]


async def test_an_input_after_an_end_that_was_not_read_is_refused() -> None:
    async with runtime() as rt:
        assistant = await start(rt, call("goodbye"), say("Bye."), tools=[goodbye], middleware=[QuitTools("goodbye")])
        await assistant.input("Go.")
        await wait_until(lambda: not rt.is_running("s"))
        with pytest.raises(Closed, match="agent: closed"):
            await assistant.input("Still there?")
        assert types(await assistant.run_until_eof()) == ["tool_start", "tool_done", "chunk", "closed"]


async def test_a_denied_call_is_an_error_and_never_starts() -> None:
    async with runtime(permissions=vaka.Permissions(deny=["look"])) as rt:
        assistant = await start(rt, call("look", at="it"), say("No."))
        assert types(await assistant.run_until_eof("Go.")) == ["tool_error", "chunk", "eof"]


async def test_an_input_during_a_round_interrupts_it_first() -> None:
    gate = Gate()
    async with runtime() as rt:
        assistant = await start(rt, call("wait"), say("Second."), tools=[gate.tool()])
        await assistant.input("First.")
        await gate.entered.wait()
        events = await assistant.run_until_eof("Second?")
        assert types(events) == ["tool_start", "tool_error", "chunk", "eof"]
        assert "[user]: Second?" in await assistant.format_history()


async def test_revert_takes_back_one_round_each_time() -> None:
    async with runtime() as rt:
        assistant = await start(rt, say("One."), say("Two."), say("Three."))
        await assistant.revert()  # nothing was said
        for text in ("First.", "Second.", "Third."):
            await assistant.run_until_eof(text)
        await assistant.revert()
        await assistant.revert()
        assert await assistant.format_history() == "[user]: First.\n[model]: One."
        assert text_of_chunks(await assistant.run_until_eof("Second again.")) == "Two."
        await assistant.revert()
        await assistant.state.revert()
        assert await assistant.format_history() == ""


async def test_revert_interrupts_the_round_that_runs() -> None:
    gate = Gate()
    async with runtime() as rt:
        assistant = await start(rt, say("One."), call("wait"), say("Two."), tools=[gate.tool()])
        await assistant.run_until_eof("First.")
        await assistant.input("Second.")
        await gate.entered.wait()
        await assistant.revert()
        assert types(await assistant.run_until_eof())[-1] == "interrupted"
        assert await assistant.format_history() == "[user]: First.\n[model]: One."


async def test_a_failed_round_raises_and_the_agent_goes_on() -> None:
    async with runtime(models=Models(retries=0)) as rt:
        assistant = await start(rt, fail(400, "refused"), say("Better."))
        with pytest.raises(TurnError, match="refused"):
            await assistant.run_until_eof("Go.")
        assert text_of_chunks(await assistant.run_until_eof("Again.")) == "Better."
        with pytest.raises(InvalidInput, match="empty"):
            await assistant.input("")


async def test_close_wakes_the_caller_and_keeps_the_conversation() -> None:
    async with runtime() as rt:
        genx = GenxRuntime(rt, agents=[agent(ScriptedModel(say("One."), say("Two.")))])
        assistant = await genx.new_agent("assistant", state_id="s")
        await assistant.run_until_eof("First.")
        waiting = asyncio.create_task(assistant.next())
        await asyncio.sleep(0)
        await assistant.close()
        await assistant.close()
        assert (await waiting).type == "closed"
        assert await assistant.next() is await waiting
        with pytest.raises(Closed, match="agent: closed"):
            await assistant.input("Hi.")
        restored = await genx.restore_agent("s")
        assert text_of_chunks(await restored.run_until_eof("Second.")) == "Two."
        await restored.close(archive=False)
        assert await genx.get_state("s") is None
        with pytest.raises(NotFound, match='state "s" not found'):
            await genx.restore_agent("s")
        with pytest.raises(NotFound, match="no agent 'unknown'"):
            await genx.new_agent("unknown")


async def test_close_with_an_error_raises_it_from_every_next() -> None:
    async with runtime() as rt:
        assistant = await start(rt, stall())
        await assistant.input("Go.")
        await assistant.close_with_error(ValueError("the line is dead"))
        for _ in range(2):
            with pytest.raises(ValueError, match="the line is dead"):
                await assistant.next()


async def test_iteration_ends_with_the_terminal_event() -> None:
    async with runtime() as rt:
        assistant = await start(rt, call("goodbye"), say("Bye."), tools=[goodbye], middleware=[QuitTools("goodbye")])
        await assistant.input("Go.")
        assert types([event async for event in assistant]) == ["tool_start", "tool_done", "chunk", "closed"]


async def test_a_round_that_waits_for_a_person_goes_on_after_the_decision() -> None:
    store = MemoryStore()
    async with runtime(store, permissions=vaka.Permissions(ask="suspend", confirm=["look"])) as rt:
        assistant = await start(rt, call("look", at="it"), say("Done."))
        with pytest.raises(Suspended):
            await assistant.run_until_eof("Go.")
        [pending] = await rt.decisions()
        await rt.resolve(pending.id, "approve")
        assert types(await assistant.run_until_eof()) == ["tool_start", "tool_done", "chunk", "eof"]


async def test_an_input_takes_the_place_of_a_round_that_waits_for_a_person() -> None:
    async with runtime(permissions=vaka.Permissions(ask="suspend", confirm=["look"])) as rt:
        assistant = await start(rt, call("look", at="it"), say("As you like."))
        with pytest.raises(Suspended):
            await assistant.run_until_eof("Go.")
        assert text_of_chunks(await assistant.run_until_eof("Never mind.")) == "As you like."
        assert await rt.decisions() == []


async def test_a_runtime_that_closes_ends_next() -> None:
    async with runtime() as rt:
        assistant = await start(rt, say("One."))
        await assistant.run_until_eof("Hi.")
        waiting = asyncio.create_task(assistant.next())
        await asyncio.sleep(0)
    with pytest.raises(Closed, match="the runtime is closed"):
        await waiting


async def test_a_state_that_is_destroyed_ends_next() -> None:
    async with runtime() as rt:
        genx = GenxRuntime(rt, agents=[agent(ScriptedModel(say("One.")))])
        assistant = await genx.new_agent("assistant", state_id="s")
        await assistant.run_until_eof("Hi.")
        other = await GenxRuntime(rt, agents=[assistant.definition]).restore_agent("s")
        waiting = asyncio.create_task(assistant.next())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        await genx.destroy_state("s", archive=True)
        for following in (waiting, assistant.next(), other.next(), assistant.input("Still there?")):
            with pytest.raises(Closed, match="agent: closed; its state was destroyed"):
                await following
        restored = await genx.restore_agent("s")
        await restored.close(archive=False)
        assert (await restored.next()).type == "closed"


async def test_a_state_that_another_process_destroys_ends_next_at_the_next_input() -> None:
    store = MemoryStore()
    async with runtime(store) as here, runtime(store.open_handle()) as there:
        genx = GenxRuntime(here, agents=[agent(ScriptedModel(say("One."), say("Two.")))])
        assistant = await genx.new_agent("assistant", state_id="s")
        await assistant.run_until_eof("Hi.")
        waiting = asyncio.create_task(assistant.next())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        await GenxRuntime(there, agents=[assistant.definition]).destroy_state(assistant.state_id)
        for following in (assistant.input("Still there?"), waiting, assistant.next()):
            with pytest.raises(Closed, match="agent: closed; its state was destroyed"):
                await following
        again = await genx.new_agent("assistant", state_id="s")
        assert types(await again.run_until_eof("Hi."))[-1] == "eof"


async def test_a_round_that_cannot_be_continued_raises_from_every_next() -> None:
    store = MemoryStore()
    async with runtime(store) as here, runtime(store.open_handle()) as there:
        assistant = await start(here, stall())
        await assistant.input("Go.")
        restored = await GenxRuntime(there, agents=[agent(ScriptedModel(say("Other.")))]).restore_agent("s")
        for _ in range(2):
            with pytest.raises(Busy):
                await restored.next()
        with pytest.raises(InvalidInput, match="empty"):
            await restored.input("")
        with pytest.raises(Busy):
            await restored.next()
        await assistant.interrupt()
        assert types(await assistant.run_until_eof()) == ["interrupted"]
        assert types(await restored.run_until_eof()) == ["interrupted"]


async def test_a_round_that_ended_elsewhere_gives_its_last_events() -> None:
    async with runtime(permissions=vaka.Permissions(ask="suspend", confirm=["look"])) as rt:
        assistant = await start(rt, call("look", at="it"), say("Done."))
        with pytest.raises(Suspended):
            await assistant.run_until_eof("Go.")
        [pending] = await rt.decisions()
        await rt.resolve(pending.id, "approve")
        await (await rt.open(assistant.definition, id="s")).resume().wait()
        rest = await assistant.run_until_eof()
        assert types(rest) == ["tool_start", "tool_done", "chunk", "eof"]
        assert text_of_chunks(rest) == "Done."


async def test_an_interrupt_stops_the_round_of_an_input_that_has_not_returned() -> None:
    async with runtime() as rt:
        assistant = await start(rt, stall())
        begun = asyncio.create_task(assistant.input("Go."))
        await asyncio.sleep(0)
        await assistant.interrupt()
        assert begun.done()
        assert types(await assistant.run_until_eof()) == ["interrupted"]


async def test_closing_an_agent_whose_round_waits_for_a_person_keeps_the_question() -> None:
    async with runtime(permissions=vaka.Permissions(ask="suspend", confirm=["look"])) as rt:
        assistant = await start(rt, call("look", at="it"), say("Done."))
        with pytest.raises(Suspended):
            await assistant.run_until_eof("Go.")
        await assistant.close()
        [pending] = await rt.decisions()
        await rt.resolve(pending.id, "approve")
        restored = await GenxRuntime(rt, agents=[assistant.definition]).restore_agent("s")
        assert types(await restored.run_until_eof()) == ["tool_start", "tool_done", "chunk", "eof"]


async def test_a_killed_round_goes_on_in_another_process(tmp_path: Path) -> None:
    copy, gate = tmp_path / "copy.db", Gate()
    lines = [call("wait"), say("Done."), say("Again.")]
    async with vaka.Runtime(store=f"sqlite:///{tmp_path}/vaka.db") as dying:
        made = agent(ScriptedModel(*lines), gate.tool())
        assistant = await GenxRuntime(dying).new_agent(made, "parent", state_id="s")
        await assistant.input("Go.")
        assert (await assistant.next()).type == "tool_start"
        await gate.entered.wait()
        with closing(sqlite3.connect(tmp_path / "vaka.db")) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)  # what the process leaves if it is killed now
        gate.opened.set()
    gate = Gate()
    gate.opened.set()
    async with vaka.Runtime(store=f"sqlite:///{copy}") as rt:
        restored = await GenxRuntime(rt, agents=[agent(ScriptedModel(*lines), gate.tool())]).restore_agent("s")
        assert restored.state.parent_state_id == "parent"
        events = await restored.run_until_eof()
        assert types(events) == ["tool_start", "tool_done", "chunk", "eof"]
        assert events[1].tool_call is not None
        assert events[1].tool_call.func_call.name == "wait"
        assert text_of_chunks(await restored.run_until_eof("More.")) == "Again."


async def test_long_answers_and_results_are_whole() -> None:
    long = "x" * 50_000

    @vaka.tool(effect="read")
    async def read() -> str:
        """Read."""
        return long

    async with runtime() as rt:
        assistant = await start(rt, call("read"), say(long), tools=[read])
        events = await assistant.run_until_eof("Go.")
        assert text_of_chunks(events) == long
        assert events[1].tool_result is not None
        assert len(events[1].tool_result.result) >= 50_000


async def test_the_streams_of_an_agent_can_be_split() -> None:
    async with runtime() as rt:
        assistant = await start(
            rt, call("goodbye"), say("Bye now."), tools=[goodbye], middleware=[QuitTools("goodbye")]
        )
        await assistant.input("Go.")
        async with Demultiplexer(aiter(assistant), route_agent_event) as demultiplexer:
            kinds = {stream.key.kind: [piece.data async for piece in stream] async for stream in demultiplexer}
        assert "".join(kinds["text"]) == "Bye now."
        assert [data["event"] for data in kinds["tool"]] == ["tool_start", "tool_done"]
        assert demultiplexer.last_end is not None
        assert demultiplexer.last_end.kind == "closed"


async def test_an_agent_that_exists_is_restored_and_not_made_again() -> None:
    async with runtime() as rt:
        await start(rt, say("One."))
        with pytest.raises(InvalidInput, match='state "s" exists'):
            await start(rt, say("One."))


async def test_a_state_cannot_change_while_a_turn_runs() -> None:
    gate = Gate()
    async with runtime() as rt:
        assistant = await start(rt, call("wait"), say("Done."), tools=[gate.tool()])
        await assistant.input("Go.")
        await gate.entered.wait()
        assert await assistant.state.phase() == "tool"
        with pytest.raises(Busy):
            await assistant.state.set_summary("We met.")
        gate.opened.set()
        await assistant.run_until_eof()
        await assistant.state.set_summary("We met.")
        assert (await assistant.state.summary(), await assistant.state.phase()) == ("We met.", "")


def test_an_input_is_made_of_texts_blobs_and_parts() -> None:
    image = Image(url="https://example.com/a.png")
    parts = to_content(
        [
            "Hi.",
            image,
            Blob(mime_type="audio/wav", data=b"1"),
            Blob(mime_type="image/png", data=b"2"),
            Blob(mime_type="text/csv", data=b"3"),
        ]
    )
    assert [type(part) for part in parts[1:]] == [Image, Audio, Image, Document]
    wrong: Any = [3]
    with pytest.raises(InvalidInput, match="not int"):
        to_content(wrong)


async def test_nothing_follows_a_close_at_any_moment_of_an_input(tmp_path: Path) -> None:
    async with vaka.Runtime(store=f"sqlite:///{tmp_path}/vaka.db") as rt:
        genx = GenxRuntime(rt, agents=[agent(ScriptedModel(say("One.", repeat=True)))])
        for ticks in range(12):
            assistant = await genx.new_agent("assistant", state_id=f"s{ticks}")
            giving = asyncio.create_task(assistant.input("Hi."))
            for _ in range(ticks):
                await asyncio.sleep(0)
            await assistant.close()
            await asyncio.wait([giving])
            assert giving.exception() is None or isinstance(giving.exception(), Closed)
            assert (await assistant.next()).type == "closed"
            assert not rt.is_running(assistant.state_id)


async def test_the_results_of_a_round_that_has_not_ended_are_in_its_document() -> None:
    gate, store = Gate(), MemoryStore()
    async with runtime(store) as rt:
        lines = [calls(call("look", at="it"), call("fly")), call("wait"), say("Done.")]
        assistant = await start(rt, *lines, tools=[look, gate.tool()])
        await assistant.input("Go.")
        await gate.entered.wait()
        document = await assistant.state.to_document()
        assert [(result.name, result.is_error) for result in document.tool_results] == [("look", False), ("fly", True)]
        copy = await GenxRuntime(rt).import_state(document, state_id="copy")
        results = [
            body.result
            for body in [event.data for event in await collect(store.events.read(SessionId("copy")))]
            if isinstance(body, ToolCompleted | ToolFailed)
        ]
        assert [result.failed for result in results] == [False, True]
        assert [message.content for message in await copy.load_recent()][:1] == ["Go."]
        gate.opened.set()
        await assistant.run_until_eof()
        assert (await assistant.state.to_document()).tool_results == ()


async def test_closing_during_a_round_ends_it() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        assistant = await start(rt, stall(), say("Later."))
        await assistant.input("Go.")
        waiting = asyncio.create_task(assistant.next())
        await wait_until(lambda: rt.is_running("s"))
        await assistant.close()
        assert (await waiting).type == "closed"
        assert not rt.is_running("s")
