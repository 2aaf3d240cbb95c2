"""The runtime through its public methods, and the errors for wrong use."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.interleaving import run_skipping
from tests.runtime.runtime_fixtures import (
    agent,
    check_log,
    collect,
    collect_turn,
    count_events,
    event_types,
    last_body,
    log_writer,
    read_log,
    results_by_call,
    runtime,
    wait_until,
)
from vaka.core.session.hash_chain import seal
from vaka.core.types.control import InputAdded, InterruptRequested, SessionOpened
from vaka.core.types.errors import Busy, Cancelled, Closed, ConfigError, InvalidInput, NotFound, TooNew, Unavailable
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.message import Text
from vaka.core.types.progress import TurnInterrupted, TurnStarted
from vaka.runtime.model_registry import ModelConfig, ModelRegistry
from vaka.runtime.open_store import open_store as store_named
from vaka.runtime.options import Environment
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, fail, say, stall


@vaka.tool(effect="read")
async def look(at: str = "") -> str:
    """Look at something."""
    return f"seen {at}"


async def test_run_answers_one_prompt_in_memory() -> None:
    assert (await vaka.run(agent(ScriptedModel(say("Yes."))), "Is it raining?")).text == "Yes."


def test_run_sync_runs_without_an_event_loop() -> None:
    assert vaka.run_sync(agent(ScriptedModel(say("Yes."))), "Is it raining?").text == "Yes."


async def test_run_sync_inside_an_event_loop_names_run() -> None:
    with pytest.raises(InvalidInput, match=r"await vaka\.run"):
        vaka.run_sync(agent(ScriptedModel(say("Yes."))), "Hi.")


async def test_cancelling_a_run_ends_its_turn() -> None:
    store = MemoryStore()
    task = asyncio.create_task(vaka.run(agent(ScriptedModel(stall())), "Hi.", store=store))
    await wait_until(lambda: bool(store.hub.shared.logs))
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    [(_, name)] = store.hub.shared.logs
    assert last_body(await read_log(store, name)).type == "turn.cancelled"


async def test_an_error_inside_a_runtime_ends_its_turns() -> None:
    store = MemoryStore()

    async def crash() -> None:
        async with runtime(store) as rt:
            session = await rt.open(agent(ScriptedModel(stall())), id="s")
            await session.send("Hi.")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await crash()
    assert last_body(await read_log(store, "s")).type == "turn.cancelled"


async def test_the_first_event_describes_the_session() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(say("Yes."))), id="s", metadata={"user": "ann"})
        assert session.metadata == {"user": "ann"}
        await session.run("Hi.")
    assert (await read_log(store, "s"))[0].data == SessionOpened(agent="assistant", metadata={"user": "ann"})


async def test_a_session_may_be_opened_with_everything_or_nothing() -> None:
    async with runtime(agent=agent(ScriptedModel(say("default", repeat=True)))) as rt:
        response = await (await rt.open()).run("Hi.")
        assert response.text == "default"
        assert response.session_id.startswith("ses_cli_")
        other = await rt.open(agent(ScriptedModel(say("other"))), metadata={"a": 1})
        assert (await other.run((Text(text="Hi."),))).text == "other"


async def test_the_entry_point_names_new_sessions_and_decides_who_is_asked() -> None:
    async with vaka.Runtime(
        environment=Environment(entry_point="platform"), agent=agent(ScriptedModel(say("x")))
    ) as rt:
        assert (await (await rt.open()).run("Hi.")).session_id.startswith("ses_platform_")
        assert rt.options.ask_mode == "wait"
    assert vaka.Runtime(environment=Environment(entry_point="ci")).options.ask_mode == "deny"


async def test_two_sessions_do_not_wait_for_each_other() -> None:
    async with runtime() as rt:
        slow = await rt.open(agent(ScriptedModel(stall())), id="slow")
        await slow.send("Hi.")
        fast = await rt.open(agent(ScriptedModel(say("fast"))), id="fast")
        assert (await fast.run("Hi.")).text == "fast"
        await slow.interrupt()


async def test_a_failing_session_does_not_affect_others() -> None:
    async with runtime() as rt:
        bad = [await rt.open(agent(ScriptedModel(fail())), id=f"bad{n}") for n in range(5)]
        good = [await rt.open(agent(ScriptedModel(call("look"), say("ok")), look), id=f"good{n}") for n in range(5)]
        done = await asyncio.gather(*(s.run("Hi.") for s in (*bad, *good)), return_exceptions=True)
    assert [getattr(response, "text", "") for response in done[5:]] == ["ok"] * 5
    assert all(isinstance(error, vaka.VakaError) for error in done[:5])


@pytest.mark.parametrize(
    "says", ["", (), [], " \n\t", (vaka.Text(text=" "),), (vaka.Text(text=""), vaka.Text(text="\n"))]
)
async def test_an_empty_prompt_is_refused(says: Any) -> None:
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(say("x"))), id="s")
        for way in (session.run, session.send):
            with pytest.raises(InvalidInput, match="the input is empty"):
                await way(says)


async def test_an_unknown_value_of_on_busy_is_refused() -> None:
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(say("x"))), id="s")
        for way in (session.run, session.send):
            with pytest.raises(InvalidInput, match="on_busy 'shout' must be one of reject, queue"):
                await way("Hi.", on_busy="shout")  # type: ignore[arg-type]  # what people do


async def test_opening_without_an_agent_is_an_error_that_names_the_options() -> None:
    async with runtime() as rt:
        with pytest.raises(InvalidInput, match=r"no agent: pass one to open\(\)"):
            await rt.open()


async def test_running_without_a_model_is_an_error_that_names_the_options() -> None:
    async with runtime() as rt:
        with pytest.raises(ConfigError, match="agent 'x' has no model; set one for the agent or for the runtime"):
            await (await rt.open(vaka.Agent("x"))).run("Hi.")


@pytest.mark.parametrize("id", [" x", "x" * 201, "a\nb"])
async def test_an_impossible_session_id_is_refused(id: str) -> None:
    async with runtime() as rt:
        with pytest.raises(InvalidInput, match="session id"):
            await rt.open(agent(ScriptedModel(say("x"))), id=id)


async def test_a_closed_runtime_accepts_no_input() -> None:
    rt = runtime()
    session = await rt.open(agent(ScriptedModel(say("x"))), id="s")
    await session.run("Hi.")
    await rt.close()
    await rt.close()
    for work in (rt.open(session.agent), session.run("Hi."), session.send("Hi."), collect(session.resume())):
        with pytest.raises(Closed, match="the runtime is closed"):
            await work


async def test_a_session_that_does_not_exist_is_named() -> None:
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(say("x"))), id="nope")
        for work in (
            session.interrupt(),
            session.checkpoint("a"),
            session.fork(),
            session.rewind("1"),
            session.close(),
        ):
            with pytest.raises(NotFound, match="'nope'"):
                await work
        assert await session.messages() == ()


def test_names_of_models_and_stores_are_looked_up(tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text('{"text": "Hi."}\n')
    models = ModelRegistry(ModelConfig())
    assert models.find(f"scripted:{script}").name == "scripted"
    with pytest.raises(ConfigError, match="model 'gtp' is not known"):
        models.find("gtp")
    assert isinstance(store_named("memory:"), MemoryStore)
    assert store_named(f"sqlite:///{tmp_path}/x.db").url
    for url in ("mysql://x", "sqlite:", "sqlite://host/x", "sqlite:///"):
        with pytest.raises(ConfigError, match="store "):
            store_named(url)


async def test_a_model_named_twice_is_made_once(tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text('{"text": "Hi.", "repeat": true}\n')
    name = f"scripted:{script}"
    async with vaka.Runtime(model=name, permissions=vaka.Permissions(ask="wait")) as rt:
        for id in ("a", "b"):
            assert (await (await rt.open(vaka.Agent("x"), id=id)).run("Hi.")).text == "Hi."
        script.unlink()
        assert (await (await rt.open(vaka.Agent("y", model=name), id="c")).run("Hi.")).text == "Hi."


async def test_an_agent_may_change_between_turns() -> None:
    async with runtime() as rt:
        who = agent(ScriptedModel(say("one", repeat=True)))
        session = await rt.open(who, id="s")
        await session.run("Hi.")
        model = ScriptedModel(say("two", repeat=True))
        who.model = model
        who.options = {"temperature": 1}
        who.tool_choice = "none"
        who.instructions = "New."
        assert (await session.run("Hi.")).text == "two"
    [prompt] = model.prompts
    assert (prompt.options, prompt.tool_choice, prompt.system) == ({"temperature": 1}, "none", "New.")


async def test_creating_many_agents_is_cheap() -> None:
    async with runtime() as rt:
        for n in range(600):
            assert (await (await rt.open(agent(ScriptedModel(say(f"{n}"))), id=f"s{n}")).run("Hi.")).text == f"{n}"


async def test_plain_functions_and_callables_are_tools() -> None:
    class Adder:
        """Add."""

        __hash__ = None  # type: ignore[assignment]  # some are not hashable

        def __call__(self, a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

    def plain(a: int) -> int:
        """Return what was given."""
        return a

    model = ScriptedModel(call("plain", a=3), say("done"))
    async with runtime() as rt:
        events = await collect_turn(await rt.open(agent(model, plain, Adder()), id="s"))
    assert results_by_call(events)["call_1"].value == 3
    assert len(model.prompts[0].tools) == 2


async def test_forks_rewinds_and_checkpoints() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        model = ScriptedModel(*(say(text) for text in ("one", "two", "three", "four")))
        session = await rt.open(agent(model), id="s")
        await session.run("1")
        here = await session.checkpoint("first")
        await session.run("2")
        branch = await session.fork("first")
        assert len(await branch.messages()) == 2
        assert (await branch.run("2b")).text == "two"
        await session.rewind(here)
        assert len(await session.messages()) == 2
        await session.rewind("first")
        assert (await session.run("3")).text == "two"
        with pytest.raises(InvalidInput, match="has no checkpoint 'nowhere'; it has: first"):
            await session.rewind("nowhere")
        with pytest.raises(InvalidInput, match="has no event 99"):
            await session.rewind("99")
        with pytest.raises(InvalidInput, match="session 's' already exists"):
            await branch.fork(id="s")
        whole = await session.fork()
        assert len(await whole.messages()) == 4
        await session.close("done")
        assert (await session.run("4")).text
    check_log([event for event in await read_log(store, "s") if event.type != "session.reverted"][:8])
    assert not store.hub.shared.claims


async def test_a_busy_session_is_rewound_only_with_interrupt() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(say("one"), stall())), id="s")
        await session.run("1")
        cursor = await session.checkpoint("here")
        task = asyncio.create_task(session.run("2"))
        await wait_until(lambda: count_events(store, "s", "step.started") == 2)
        for work in (session.rewind(cursor), session.checkpoint("x"), session.close()):
            with pytest.raises(Busy):
                await work
        await session.rewind(cursor, interrupt=True)
        with pytest.raises(vaka.VakaError):
            await task
        assert len(await session.messages()) == 2
    assert event_types(await read_log(store, "s"))[-1] == "session.reverted"


async def test_last_turn_returns_the_events_of_the_last_turn() -> None:
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(say("one"), say("two"))), id="s")
        await session.run("1")
        await session.run("2")
        events = await session.last_turn()
        with pytest.raises(NotFound):
            await (await rt.open(session.agent, id="none")).last_turn()
    assert (event_types(events)[0], last_body(events).text) == ("turn.started", "two")


async def test_the_last_turn_is_that_of_the_branch_that_a_rewind_goes_to() -> None:
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(say("one"), say("two"))), id="s")
        ends: list[Event] = []
        for prompt in ("1", "2"):
            await session.run(prompt)
            ends.append((await session.last_turn())[-1])
        for end in (ends[0], ends[1], ends[0], ends[1]):
            await session.rewind(end.id)
            assert (await session.last_turn())[-1] == end
        assert (await session.resume().wait()).text == "two"


async def test_a_follower_starts_at_any_cursor_and_receives_all_later_events() -> None:
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(call("look"), say("done"), say("again")), look), id="s")
        events = [event for event in await collect_turn(session) if event.seq]
        for start in (None, "1.3", events[5].id):
            after = int((start or "0").rpartition(".")[2])
            async with aclosing(session.follow(start)) as following:
                seen = [await anext(following) for _ in events[after:]]
            assert [event.id for event in seen] == [event.id for event in events[after:]]


async def test_a_log_of_a_newer_vaka_is_not_written() -> None:
    store = MemoryStore()
    event = Event(data=SessionOpened(agent="x"), session=SessionId("s"), ts="2030-01-01T00:00:00.000Z", v=99)
    await log_writer(store, "s", [seal(event, epoch=1, seq=1, prev="")])()
    async with runtime(store) as rt:
        with pytest.raises(TooNew, match="version 99"):
            await (await rt.open(agent(ScriptedModel(say("x"))), id="s")).run("Hi.")
    assert not store.hub.shared.claims


class FlakyStore:
    """An event store that cannot be reached for some calls of one method."""

    def __init__(self, inner: Any, method: str, times: int) -> None:
        self._inner = inner
        self._method = method
        self.times = times

    def __getattr__(self, name: str) -> Any:
        if name == self._method and self.times:
            self.times -= 1
            return self._fails
        return getattr(self._inner, name)

    async def _fails(self, *_: Any, **__: Any) -> Any:
        raise Unavailable("gone for a moment")


async def test_a_turn_survives_a_short_outage_of_the_store() -> None:
    store = MemoryStore()
    store.events = FlakyStore(store.events, "append", 3)
    async with runtime(store, environment=Environment(clock=FakeClock(auto=True))) as rt:
        assert (await (await rt.open(agent(ScriptedModel(say("x"))), id="s")).run("Hi.")).text == "x"
    check_log(await read_log(store, "s"))


async def test_a_store_that_stays_unavailable_raises_in_the_caller() -> None:
    store = MemoryStore()
    store.events = FlakyStore(store.events, "append", 10**6)
    async with runtime(store, environment=Environment(clock=FakeClock(auto=True))) as rt:
        with pytest.raises(Unavailable, match="cannot be reached; gave up"):
            await (await rt.open(agent(ScriptedModel(say("x"))), id="s")).run("Hi.")
    assert not store.hub.shared.claims


async def test_waiting_for_events_continues_after_an_outage_of_the_store() -> None:
    store = MemoryStore()
    clock = FakeClock(auto=True)
    store.events = FlakyStore(store.events, "wait", 2)
    async with runtime(store, environment=Environment(clock=clock)) as rt:
        session = await rt.open(agent(ScriptedModel(stall())), id="s")
        task = asyncio.create_task(session.run("Hi."))
        await wait_until(lambda: count_events(store, "s", "step.started") == 1)
        await rt._drivers.offer(session.id, _interrupt_body("int_x"), "int_x")
        with pytest.raises(vaka.VakaError):
            await task


def _interrupt_body(key: str) -> Any:
    return InterruptRequested(key=key)


async def test_a_turn_whose_claim_was_lost_writes_nothing_and_raises_a_conflict() -> None:
    """Another process has the session: this one must not write, and says so to its caller."""
    store = MemoryStore()
    inside = asyncio.Event()

    @vaka.tool(effect="read")
    async def wait() -> str:
        """Wait."""
        inside.set()
        await go.wait()
        return "late"

    go = asyncio.Event()
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(call("wait"), say("x")), wait), id="s")
        task = asyncio.create_task(session.run("Hi."))
        await inside.wait()
        store.hub.shared.claims.clear()
        go.set()
        with pytest.raises(vaka.VakaError) as caught:
            await task
    assert caught.value.code == "conflict"
    assert "tool.completed" not in event_types(await read_log(store, "s"))


async def test_resume_starts_the_turn_of_an_input_in_the_log() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        await (await rt.open(agent(ScriptedModel(say("one"))), id="s")).run("1")
        await rt._drivers.offer(SessionId("s"), InputAdded(key="k", content=(Text(text="2"),)), "k")
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(say("-"), say("two"))), id="s")
        events = await collect(session.resume())
    assert isinstance(events[0].data, TurnStarted)
    assert last_body(events).text == "two"


async def test_an_interrupt_before_the_first_write_ends_the_turn() -> None:
    inside = asyncio.Event()

    async def slow(turn: Any, content: Any) -> Any:
        inside.set()
        await asyncio.Event().wait()

    store = MemoryStore()
    mw = vaka.Middleware.from_functions("slow", before_agent=slow)
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(say("x", repeat=True)), middleware=[mw]), id="s")
        for _ in range(2):
            inside.clear()
            task = asyncio.create_task(session.run("Hi."))
            await inside.wait()
            await session.interrupt("enough")
            with pytest.raises(vaka.VakaError, match="enough"):
                await task
    check_log(await read_log(store, "s"))


async def test_an_interrupt_is_the_end_of_a_turn_although_the_runtime_is_closed_next() -> None:
    store, model = MemoryStore(), ScriptedModel(stall())
    async with runtime(store) as rt:
        session = await rt.open(agent(model), id="s")
        await session.send("Hi.")
        await wait_until(lambda: bool(model.prompts))
        await session.interrupt("enough")
        await rt.close(cancel=True)
    assert last_body(await read_log(store, "s")) == TurnInterrupted(note="enough")


async def test_closing_cancels_a_run_that_has_just_started() -> None:
    rt = runtime()
    session = await rt.open(agent(ScriptedModel(stall())), id="s")
    task = asyncio.create_task(session.run("Hi."))
    await asyncio.sleep(0)
    await rt.close(cancel=True)
    await asyncio.wait([task])
    assert isinstance(task.exception(), Cancelled | Closed)


async def test_a_closed_runtime_leaves_no_tasks() -> None:
    before = asyncio.all_tasks()
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(call("look"), say("x"), say("y", repeat=True)), look), id="s")
        await collect_turn(session)
        async with aclosing(session.follow()) as events:
            await anext(events)
        await collect_turn(session)
        await wait_until(lambda: not rt.hub._fanouts and not rt.hub._pumps)
    assert asyncio.all_tasks() == before


class DeletingEvents:
    """An event store in which another process deletes a session right after an event was offered to it."""

    def __init__(self, store: MemoryStore) -> None:
        self._store, self._inner = store, store.events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def offer(self, session: SessionId, event: Event, *, key: str) -> int:
        seq = await self._inner.offer(session, event, key=key)
        await self._store.sessions.delete(session)
        return seq


async def test_a_decision_about_a_session_that_is_deleted_at_that_moment_is_not_found() -> None:
    store = MemoryStore()
    async with runtime(store, permissions=vaka.Permissions(ask="suspend", confirm=["look"])) as rt:
        with pytest.raises(vaka.Suspended) as suspended:
            await (await rt.open(agent(ScriptedModel(call("look")), look), id="s")).run("Look.")
        store.events = DeletingEvents(store)
        with pytest.raises(NotFound, match="it was deleted at this moment"):
            await rt.resolve(suspended.value.decisions[0], "approve")


def test_a_rewind_gives_up_when_the_process_that_runs_the_turn_does_not_stop() -> None:
    async def main() -> None:
        store = MemoryStore()
        async with runtime(store.open_handle()) as rt:
            await (await rt.open(agent(ScriptedModel(say("Hi."))), id="s")).run("Hi.")
            await store.events.claim(SessionId("s"))  # a process that hangs
            with pytest.raises(Busy, match="still runs a turn after 30 seconds"):
                await rt.rewind("s", "1.1", interrupt=True)

    run_skipping(main)
