"""A second input on a busy session, the same input twice, two handles, two runtimes."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import (
    agent,
    check_log,
    collect,
    collect_turn,
    count_commits,
    count_events,
    event_types,
    last_body,
    read_log,
    runtime,
    wait_until,
)
from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.types.ending import Outcome
from vaka.core.types.errors import Busy, Cancelled, Closed, Interrupted
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.message import UserMessage, text_of
from vaka.core.types.progress import StepStarted, TurnCancelled, TurnStarted
from vaka.runtime.session import Session
from vaka.stores.memory import MemoryStore
from vaka.testing.models import FunctionModel, ScriptedModel, call, say, stall


class BlockingTool:
    """A tool that can be seen to run and is let go by the test."""

    def __init__(self) -> None:
        self.inside, self.opened = asyncio.Event(), asyncio.Event()

    def tool(self) -> Any:
        @vaka.tool(effect="read")
        async def knock() -> str:
            """Wait at the blocker."""
            self.inside.set()
            await self.opened.wait()
            return "open"

        return knock


async def start_run(session: Session, says: str, **more: Any) -> "asyncio.Task[Any]":
    return asyncio.create_task(session.run(says, **more))


def user_texts(model: ScriptedModel) -> list[list[str]]:
    """What users had said at each model call."""
    return [
        ["".join(getattr(part, "text", "") for part in m.content) for m in p.messages if isinstance(m, UserMessage)]
        for p in model.prompts
    ]


async def test_a_second_input_waits_for_the_turn_before_it() -> None:
    blocker, store = BlockingTool(), MemoryStore()
    model = ScriptedModel(call("knock"), say("one"), say("two"))
    async with runtime(store) as rt:
        session = await rt.open(agent(model, blocker.tool()), id="s")
        first = await start_run(session, "First.")
        await blocker.inside.wait()
        second = await start_run(session, "Second.", on_busy="enqueue")
        await asyncio.sleep(0)
        blocker.opened.set()
        assert ((await first).text, (await second).text) == ("one", "two")
    log = await read_log(store, "s")
    check_log(log)
    assert event_types(log).count("turn.started") == 2
    assert user_texts(model)[-1] == ["First.", "Second."]


@pytest.mark.parametrize("word", ["interrupt", "rollback"])
async def test_an_input_with_interrupt_replaces_the_running_turn(word: Any) -> None:
    blocker, store = BlockingTool(), MemoryStore()
    model = ScriptedModel(call("knock"), say("two"))
    async with runtime(store) as rt:
        session = await rt.open(agent(model, blocker.tool()), id="s")
        first = await start_run(session, "First.")
        await blocker.inside.wait()
        assert (await session.run("Second.", on_busy=word)).text == "two"
        with pytest.raises(Interrupted):
            await first
    check_log(await read_log(store, "s"))


async def test_an_interrupting_input_runs_before_queued_inputs() -> None:
    blocker, store = BlockingTool(), MemoryStore()
    model = ScriptedModel(call("knock"), say("b"), say("c"))
    async with runtime(store) as rt:
        session = await rt.open(agent(model, blocker.tool()), id="s")
        first = await start_run(session, "a")
        await blocker.inside.wait()
        queued = await start_run(session, "b")
        await wait_until(lambda: count_events(store, "s", "input.added") == 2)
        urgent = await start_run(session, "c", on_busy="interrupt")
        assert (await urgent).text == "b"
        assert (await queued).text == "c"
        with pytest.raises(Interrupted):
            await first
    assert user_texts(model)[1][-1] == "c"


async def test_a_steered_input_is_added_to_the_next_step_after_the_results() -> None:
    blocker, store = BlockingTool(), MemoryStore()
    model = ScriptedModel(call("knock"), say("both"))
    async with runtime(store) as rt:
        session = await rt.open(agent(model, blocker.tool()), id="s")
        first = await start_run(session, "First.")
        await blocker.inside.wait()
        steered = await start_run(session, "Also this.", on_busy="steer")
        await asyncio.sleep(0)
        await session.steer("And that.")
        blocker.opened.set()
        assert (await first).text == (await steered).text == "both"
    assert [type(message).__name__ for message in model.prompts[1].messages] == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
        "UserMessage",
    ]
    assert user_texts(model)[1] == ["First.", "Also this.And that."]
    log = await read_log(store, "s")
    check_log(log)
    assert event_types(log).count("turn.started") == 1


async def test_an_input_steered_during_the_last_answer_is_answered() -> None:
    store = MemoryStore()
    answers = asyncio.Event()

    async def answer(prompt: Any) -> str:
        if prompt.number == 1:
            await session.steer("Wait.")
            answers.set()
            return "first"
        return "second"

    async with runtime(store) as rt:
        session = await rt.open(agent(FunctionModel(answer)), id="s")
        assert (await session.run("Go.")).text == "second"
    assert event_types(await read_log(store, "s")).count("turn.started") == 1


async def test_steering_an_idle_session_begins_a_turn() -> None:
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(say("Hello."))), id="s")
        assert (await session.run("Hi.", on_busy="steer")).text == "Hello."


async def test_on_busy_reject_raises_busy() -> None:
    blocker = BlockingTool()
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(call("knock"), say("one")), blocker.tool()), id="s")
        first = await start_run(session, "First.")
        await blocker.inside.wait()
        with pytest.raises(Busy, match="'s' is running a turn"):
            await session.run("Second.", on_busy="reject")
        blocker.opened.set()
        assert (await first).text == "one"
        await rt.close()
        with pytest.raises(Closed):
            await session.run("Third.", on_busy="reject")


async def test_many_inputs_on_a_new_session_at_once_are_all_answered() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(say("yes", repeat=True))), id="s")
        answers = await asyncio.gather(*(session.run(f"{n}") for n in range(10)))
    assert [answer.text for answer in answers] == ["yes"] * 10
    check_log(await read_log(store, "s"))


async def test_the_same_key_twice_is_one_turn() -> None:
    store = MemoryStore()
    model = ScriptedModel(say("once"), say("twice"))
    async with runtime(store) as rt:
        session = await rt.open(agent(model), id="s")
        first = await session.run("Pay.", key="k")
        again = await session.run("Pay.", key="k")
        other = await session.run("Pay.", key="l")
    assert first == again
    assert other.text == "twice"


async def test_the_same_key_at_the_same_time_is_one_turn() -> None:
    store = MemoryStore()
    model = ScriptedModel(say("once"), say("twice"))
    async with runtime(store) as rt:
        one, two = await rt.open(agent(model), id="s"), await rt.open(agent(model), id="s")
        answers = await asyncio.gather(*(handle.run("Pay.", key="k") for handle in (one, two, one, two)))
    assert {answer.turn_id for answer in answers} == {answers[0].turn_id}
    assert event_types(await read_log(store, "s")).count("input.added") == 1


async def test_send_returns_after_the_input_is_stored() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(say("Hello."))), id="s")
        key = await session.send("Hi.")
        assert any(getattr(event.data, "key", "") == key for event in await read_log(store, "s"))
    check_log(await read_log(store, "s"))


async def test_send_to_an_agent_without_a_model_raises() -> None:
    async with runtime() as rt:
        session = await rt.open(vaka.Agent("modelless"), id="s")
        with pytest.raises(vaka.VakaError, match="agent 'modelless' has no model"):
            await session.send("Hi.")


async def test_a_cancelled_caller_stops_only_its_own_turn() -> None:
    blocker, store = BlockingTool(), MemoryStore()
    model = ScriptedModel(call("knock"), say("one"), say("never"))
    async with runtime(store) as rt:
        session = await rt.open(agent(model, blocker.tool()), id="s")
        first = await start_run(session, "First.")
        await blocker.inside.wait()
        second = await start_run(session, "Second.")
        await wait_until(lambda: count_events(store, "s", "input.added") == 2)
        second.cancel()
        await asyncio.wait([second])
        blocker.opened.set()
        assert (await first).text == "one"
    log = await read_log(store, "s")
    check_log(log)
    assert isinstance(last_body(log), TurnCancelled)
    assert len(model.prompts) == 2


async def test_a_caller_cancelled_before_its_turn_was_written_leaves_no_events() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(say("one", repeat=True))), id="s")
        await session.run("Zero.")
        counting = count_commits(store)
        task = await start_run(session, "First.")
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert (await session.run("Second.")).text == "one"
    check_log(await read_log(store, "s"))
    assert len(counting.commits) <= 4


async def test_cancelling_a_steered_input_does_not_stop_the_turn() -> None:
    blocker = BlockingTool()
    model = ScriptedModel(call("knock"), call("knock"), say("done"))
    async with runtime() as rt:
        session = await rt.open(agent(model, blocker.tool()), id="s")
        first = await start_run(session, "First.")
        await blocker.inside.wait()
        joined = await start_run(session, "Also.", on_busy="steer")
        await asyncio.sleep(0)
        blocker.opened.set()
        await wait_until(lambda: len(model.prompts) == 2)
        joined.cancel()
        await asyncio.wait([joined])
        assert (await first).text == "done"


async def test_leaving_a_stream_does_not_stop_the_turn() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(say("Hello."))), id="s")
        async with aclosing(session.stream("Hi.")) as events:
            await anext(events)
    log = await read_log(store, "s")
    check_log(log)
    assert last_body(log).text == "Hello."


async def test_a_second_runtime_offers_its_input_to_the_first_and_follows() -> None:
    blocker, store = BlockingTool(), MemoryStore()
    model = ScriptedModel(call("knock"), say("one"), say("two"))
    other = store.open_handle()
    async with runtime(store) as rt, runtime(other) as rt2:
        one = await rt.open(agent(model, blocker.tool()), id="s")
        two = await rt2.open(agent(ScriptedModel(say("wrong", repeat=True))), id="s")
        first = await start_run(one, "First.")
        await blocker.inside.wait()
        with pytest.raises(Busy):
            await two.run("Now.", on_busy="reject")
        second = await start_run(two, "Second.", key="2")
        await wait_until(lambda: count_events(store, "s", "input.added") == 2)
        blocker.opened.set()
        assert (await first).text == "one"
        assert (await second).text in {"two", "wrong"}  # the order of the two claims is not fixed
    log = await read_log(store, "s")
    check_log(log)
    assert event_types(log).count("turn.started") == 2


async def test_a_second_runtime_takes_over_when_the_first_dies() -> None:
    blocker, store = BlockingTool(), MemoryStore()
    model = ScriptedModel(call("knock"), say("done"), say("two"))
    other = store.open_handle()
    async with runtime(store) as rt, runtime(other) as rt2:
        one, two = (
            await rt.open(agent(model, blocker.tool()), id="s"),
            await rt2.open(agent(model, blocker.tool()), id="s"),
        )
        first = await start_run(one, "First.")
        await blocker.inside.wait()
        second = await start_run(two, "Second.", key="2")
        await wait_until(lambda: count_events(store, "s", "input.added") == 2)
        driver = rt._drivers.active.get(one.id)
        assert driver is not None
        driver.abort()
        with pytest.raises(Closed, match="resume it"):
            await first
        blocker.opened.set()
        assert (await second).text == "two"
    log = await read_log(store, "s")
    check_log(log)
    assert "turn.resumed" in event_types(log)


async def test_a_second_runtime_waits_for_a_new_session_to_exist() -> None:
    hold = asyncio.Event()

    async def slowly(turn: Any, content: Any) -> Any:
        await hold.wait()
        return content

    store = MemoryStore()
    slow = vaka.Middleware.from_functions("slow", before_agent=slowly)
    async with runtime(store) as rt, runtime(store.open_handle()) as rt2:
        one = await rt.open(agent(ScriptedModel(say("a", repeat=True)), middleware=[slow]), id="s")
        two = await rt2.open(agent(ScriptedModel(say("a", repeat=True))), id="s")
        first = await start_run(one, "First.")
        await asyncio.sleep(0)
        second = await start_run(two, "Second.", key="2")
        await asyncio.sleep(0)
        hold.set()
        assert [(await first).text, (await second).text] == ["a", "a"]
    check_log(await read_log(store, "s"))


async def test_closing_a_second_runtime_raises_closed_in_its_caller() -> None:
    blocker, store = BlockingTool(), MemoryStore()
    other = store.open_handle()
    async with runtime(store) as rt:
        one = await rt.open(agent(ScriptedModel(call("knock"), say("done"), say("two")), blocker.tool()), id="s")
        first = await start_run(one, "First.")
        await blocker.inside.wait()
        rt2 = runtime(other)
        two = await rt2.open(agent(ScriptedModel(say("never"))), id="s")
        second = await start_run(two, "Second.", key="2")
        await wait_until(lambda: count_events(store, "s", "input.added") == 2)
        await rt2.close()
        with pytest.raises(Closed):
            await second
        blocker.opened.set()
        await first
    assert event_types(await read_log(store, "s")).count("turn.started") == 2


async def test_closing_with_cancel_ends_the_turn_and_leaves_the_queue_in_the_log() -> None:
    blocker, store = BlockingTool(), MemoryStore()
    rt = runtime(store)
    session = await rt.open(agent(ScriptedModel(call("knock"), say("one"), stall()), blocker.tool()), id="s")
    first = await start_run(session, "First.")
    await blocker.inside.wait()
    await session.send("Second.")
    await rt.close(cancel=True)
    with pytest.raises(Cancelled):
        await first
    log = await read_log(store, "s")
    check_log(log)
    assert event_types(log).count("turn.started") == 1
    async with runtime(store) as again:
        late = await again.open(agent(ScriptedModel(say("late", repeat=True))), id="s")
        events = await collect(late.resume())
    assert isinstance(events[0].data, TurnStarted)
    assert last_body(events).text == "late"


async def test_a_session_is_released_after_a_turn_that_could_not_start() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        for _ in range(2):
            with pytest.raises(vaka.VakaError, match="has no model"):
                await (await rt.open(vaka.Agent("modelless"), id="s")).run("Hi.")
        assert (await (await rt.open(agent(ScriptedModel(say("yes"))), id="s")).run("Hi.")).text == "yes"


async def test_a_steered_stream_begins_where_it_joined() -> None:
    blocker = BlockingTool()
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(call("knock"), say("both")), blocker.tool()), id="s")
        first = await start_run(session, "First.")
        await blocker.inside.wait()
        joined = asyncio.create_task(collect_turn(session, "Also.", on_busy="steer"))
        await asyncio.sleep(0)
        blocker.opened.set()
        await first
        assert event_types(await joined)[:2] == ["input.added", "step.started"]


class BlockedEvents:
    """An event store in which one read, counted from 1, never ends."""

    def __init__(self, inner: Any, blocked: int) -> None:
        self._inner = inner
        self._blocked = blocked
        self._reads = 0
        self.reached = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def read(self, session: SessionId, *, after: int = 0, upto: int | None = None) -> AsyncGenerator[Event]:
        self._reads += 1
        if self._reads == self._blocked:
            self.reached.set()
            await asyncio.Event().wait()
        async with aclosing(self._inner.read(session, after=after, upto=upto)) as events:
            async for event in events:
                yield event


@pytest.mark.parametrize("read", [1, 2])
async def test_a_run_cancelled_while_it_opens_a_session_holds_no_claim(read: int) -> None:
    store, assistant = MemoryStore(), agent(ScriptedModel(say("one"), say("two")))
    async with runtime(store) as rt:
        await (await rt.open(assistant, id="s")).run("First.")
    blocked = store.events = BlockedEvents(store.events, read)
    async with runtime(store) as rt:
        opened = await rt.open(assistant, id="s")
        cancelled = await start_run(opened, "Second.")
        await blocked.reached.wait()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert (await opened.run("Third.")).text == "two"


async def test_two_first_prompts_of_two_processes_are_both_answered(tmp_path: Path) -> None:
    assistant, store = agent(ScriptedModel(say("one"), say("two"))), f"sqlite:///{tmp_path}/vaka.db"
    async with vaka.Runtime(store=store) as here, vaka.Runtime(store=store) as there:
        sessions = [await rt.open(assistant, id="s") for rt in (here, there)]
        answers = await asyncio.gather(*(session.run("Hello.") for session in sessions))
        assert sorted(answer.text for answer in answers) == ["one", "two"]
        assert len({answer.turn_id for answer in answers}) == 2
        check_log(await collect(here.store.events.read(SessionId("s"))))


async def test_an_input_steered_in_after_the_last_answer_is_in_the_next_prompt_once() -> None:
    model = ScriptedModel(say("one"), say("two"))
    late = ["late"]

    async def steer(turn: Turn, outcome: Outcome) -> Outcome:
        if late:
            await session.steer(late.pop())
        return outcome

    async with runtime() as rt:
        session = await rt.open(
            agent(model, middleware=[Middleware.from_functions("steer", after_agent=steer)]), id="s"
        )
        await session.run("First.")
        await session.resume().wait()
        said = [message for message in model.prompts[1].messages if isinstance(message, UserMessage)]
        assert [text_of(message.content) for message in said] == ["First.", "late"]
        inputs = [e.data.inputs for e in await session.last_turn() if isinstance(e.data, TurnStarted | StepStarted)]
        assert len([key for keys in inputs for key in keys]) == 1


async def test_inputs_given_at_the_same_time_are_answered_in_their_order() -> None:
    """The turn of the first one ends before the others are stored."""
    model = ScriptedModel(*(say(str(number)) for number in range(5)))
    async with runtime(MemoryStore()) as rt:
        session = await rt.open(agent(model), id="s")
        answers = await asyncio.gather(*(session.run(f"question {number}") for number in range(5)))
    assert [answer.text for answer in answers] == ["0", "1", "2", "3", "4"]
