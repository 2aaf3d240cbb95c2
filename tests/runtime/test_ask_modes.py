"""Approvals of a runtime: rules that ask, turns that wait when it closes, and keys of decisions."""

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, runtime
from vaka.core.types.control import QuestionAnswered, SessionReverted
from vaka.core.types.errors import InvalidInput, Suspended
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.runtime.session_edits import open_boundary, rewind
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say


@vaka.tool(effect="once")
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def make_clerk() -> vaka.Agent:
    return agent(ScriptedModel(call("pay", amount=4), say("Settled.")), pay)


async def test_a_tool_in_ask_for_requests_an_approval() -> None:
    async with runtime(permissions=vaka.Permissions(confirm=("pay",), ask="suspend")) as rt:
        session = await rt.open(make_clerk(), id="s")
        with pytest.raises(Suspended) as suspended:
            await session.run("Pay.")
        [pending] = await rt.decisions()
        assert suspended.value.decisions == (pending.id,)
        await rt.resolve(pending.id, "approve")
        assert [event async for event in session.resume()][-1].data.text == "Settled."  # type: ignore[attr-defined]  # the turn's end


async def test_a_turn_that_waits_for_a_person_stays_unfinished_when_the_runtime_closes() -> None:
    store = MemoryStore()
    async with runtime(store, permissions=vaka.Permissions(confirm=("pay",))) as rt:
        session = await rt.open(make_clerk(), id="s")
        async for event in session.stream("Pay."):
            if event.type == "approval.requested":
                break
    async with runtime(store.open_handle(), permissions=vaka.Permissions(confirm=("pay",))) as rt:
        [pending] = await rt.decisions()
        await rt.resolve(pending.id, "approve")
        session = await rt.open(make_clerk(), id="s")
        assert [event async for event in session.resume()][-1].type == "turn.completed"


async def test_an_input_cannot_take_the_key_of_a_decision() -> None:
    async with runtime() as rt:
        session = await rt.open(make_clerk(), id="s")
        with pytest.raises(InvalidInput, match="begins with the prefix of a decision id"):
            await session.run("Pay.", key="apr_1")


async def test_events_offered_during_a_rewind_do_not_stop_it() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        await (await rt.open(make_clerk(), id="s")).run("Pay.")
        offered = Event(data=QuestionAnswered(question="qst_1"), session=SessionId("s"), ts="2026-01-01T00:00:00.000Z")  # type: ignore[arg-type]  # an id
        append = store.events.append

        async def late(*arguments: object, **more: object) -> int:
            store.events.append = append  # type: ignore[method-assign]  # only the first one is late
            await store.events.offer(SessionId("s"), offered, key="qst_1")
            return await append(*arguments, **more)  # type: ignore[arg-type]  # as they came

        store.events.append = late  # type: ignore[method-assign]  # a store that someone is faster than
        prefix = await open_boundary(store, SessionId("s"), "1.1")
        event = await rewind(store, SessionId("s"), prefix, "2026-01-01T00:00:01.000Z")
        assert isinstance(event.data, SessionReverted)
        assert event.data.to == 1


async def test_a_steered_input_gets_its_own_turn_when_middleware_has_before_agent() -> None:
    seen: list[str] = []

    async def look(turn: object, content: tuple[object, ...]) -> tuple[object, ...]:
        seen.append("".join(part.text for part in content))  # type: ignore[attr-defined]  # texts only
        return content

    @vaka.tool(effect="read")
    async def steer_me() -> str:
        """Say something to the running turn."""
        await session.steer("And this.")
        return "said"

    model = ScriptedModel(call("steer_me"), say("First."), say("Second."))
    guarded = agent(model, steer_me, middleware=[vaka.Middleware.from_functions("look", before_agent=look)])
    async with runtime() as rt:
        session = await rt.open(guarded, id="s")
        assert (await session.run("Go.")).text == "First."
    assert seen == ["Go.", "And this."]
