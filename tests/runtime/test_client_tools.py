"""Tools whose results come from the client: the call waits in the log, and the first result counts."""

from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, check_log, read_log, results_by_call, runtime
from vaka.content import Image
from vaka.core.ports.store import Retention
from vaka.core.types.control import QuestionAsked
from vaka.core.types.errors import InvalidInput, NotFound, Suspended
from vaka.core.types.event import Event
from vaka.core.types.ids import CallId, SessionId
from vaka.core.types.message import ToolResult
from vaka.runtime.options import Environment
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, say
from vaka.tools import ClientTool

ID = SessionId("s")
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def client_agent(*, expires_in: float | None = None) -> vaka.Agent:
    pick = ClientTool("pick", "Let the user pick a file.", SCHEMA, expires_in=expires_in)
    return agent(ScriptedModel(call("pick", name="map"), say("Thanks.")), pick)


async def suspend(rt: vaka.Runtime, bot: vaka.Agent | None = None) -> "vaka.Session[Any]":
    session = await rt.open(bot or client_agent(), id=ID)
    with pytest.raises(Suspended):
        await session.run("Go.")
    return session


async def test_a_call_waits_in_the_process_until_the_client_answers() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(client_agent(), id=ID)
        answered: Event | None = None
        async for event in session.stream("Go."):
            if isinstance(event.data, QuestionAsked):
                assert (event.data.kind, event.data.call) == ("result", "call_1")
                [waiting] = await session.client_calls()
                assert (waiting.id, waiting.name, waiting.arguments) == ("call_1", "pick", {"name": "map"})
                answered = await session.answer_call("call_1", {"path": "/map.png"}, by="app")
                assert answered == await session.answer_call("call_1", {"path": "/map.png"})
        assert await session.client_calls() == ()
        assert answered == await session.answer_call("call_1", {"path": "/map.png"})
        with pytest.raises(InvalidInput, match="has another result already"):
            await rt.answer_call(ID, "call_1", "other")
    log = await read_log(store, ID)
    check_log(log)
    assert [event.type for event in log].count("question.answered") == 1
    result = results_by_call(log)["call_1"]
    assert (result.value, result.text, result.failed) == ({"path": "/map.png"}, '{"path":"/map.png"}', False)
    types = [event.type for event in log]
    assert types.index("tool.started") < types.index("question.asked")


async def test_a_suspended_call_is_answered_in_another_process_and_the_turn_resumes() -> None:
    store, bot = MemoryStore(), client_agent()
    async with runtime(store, permissions=vaka.Permissions(ask="suspend")) as rt:
        await suspend(rt, bot)
    parts = [vaka.Text(text="see"), Image(media_type="image/png", data="AAAA" * 20_000)]
    async with runtime(store.open_handle(), permissions=vaka.Permissions(ask="suspend")) as other:
        assert [pending.event.type for pending in await other.decisions(ID)] == ["question.asked"]
        answered = await other.answer_call(ID, "call_1", parts, by="app")
        assert await other.answer_call(ID, "call_1", parts) == answered
        assert await other.decisions(ID) == []
        await other.store.gc(Retention(blobs_before="9999-01-01T00:00:00.000Z"))
        session = await other.open(bot, id=ID)
        assert (await session.resume().wait()).text == "Thanks."
        [picture] = [part for part in (await session.messages())[-2].results[0].content if isinstance(part, Image)]  # type: ignore[union-attr]  # the message with the results
        assert picture.data == "AAAA" * 20_000
    log = await read_log(store, ID)
    check_log(log)
    assert all(len(event.stored) < 40_000 for event in log)


async def test_a_failed_result_is_an_error_that_the_model_reads() -> None:
    store, bot = MemoryStore(), client_agent()
    async with runtime(store, permissions=vaka.Permissions(ask="suspend")) as rt:
        session = await suspend(rt, bot)
        await session.answer_call("call_1", "the user closed the dialog", failed=True)
        await session.resume().wait()
    result = results_by_call(await read_log(store, ID))["call_1"]
    assert (result.failed, result.reason, result.text) == (True, "error", "the user closed the dialog")


@pytest.mark.parametrize("answer", [7, {"call": "call_9", "content": []}], ids=["number", "object"])
async def test_a_plain_answer_to_the_question_is_the_result(answer: Any) -> None:
    store, bot = MemoryStore(), client_agent()
    async with runtime(store, permissions=vaka.Permissions(ask="suspend")) as rt:
        session = await suspend(rt, bot)
        [pending] = await rt.decisions(ID)
        await rt.answer(pending.id, answer)
        await session.resume().wait()
    assert results_by_call(await read_log(store, ID))["call_1"].value == answer


async def test_a_result_for_another_call_or_that_cannot_be_stored_is_refused_and_the_call_waits_on() -> None:
    huge = ToolResult(call=CallId("call_1"), content=(vaka.Text(text="x"),), value="x" * 2_000_000)
    async with runtime(permissions=vaka.Permissions(ask="suspend")) as rt:
        session = await suspend(rt)
        with pytest.raises(NotFound, match="no call 'call_2' of a client tool; calls that wait: call_1"):
            await session.answer_call("call_2", "x")
        with pytest.raises(NotFound, match="no session 'other'"):
            await rt.answer_call("other", "call_1", "x")
        for result in (object(), Image(media_type="image/png", data="!" * 40_000), huge):
            with pytest.raises(InvalidInput):
                await session.answer_call("call_1", result)
        assert [waiting.id for waiting in await session.client_calls()] == ["call_1"]


async def test_a_call_expires_and_a_late_result_is_refused() -> None:
    store, clock = MemoryStore(), FakeClock()
    async with runtime(store, environment=Environment(clock=clock), permissions=vaka.Permissions(ask="suspend")) as rt:
        session = await suspend(rt, client_agent(expires_in=60))
        clock.advance(61)
        with pytest.raises(InvalidInput, match="call_1 expired at"):
            await session.answer_call("call_1", "late")
        assert (await session.resume().wait()).text == "Thanks."
        with pytest.raises(InvalidInput, match="got no result in time"):
            await session.answer_call("call_1", "late")
    result = results_by_call(await read_log(store, ID))["call_1"]
    assert (result.failed, result.reason) == (True, "timeout")


async def test_without_a_client_the_call_fails_and_the_turn_goes_on() -> None:
    store = MemoryStore()
    async with runtime(store, permissions=vaka.Permissions(ask="deny")) as rt:
        assert (await (await rt.open(client_agent(), id=ID)).run("Go.")).text == "Thanks."
    assert "The client gave no result" in results_by_call(await read_log(store, ID))["call_1"].text


@pytest.mark.parametrize("how", ["interrupt", "rewind", "fork"])
async def test_an_interrupt_a_rewind_and_a_fork_seal_a_waiting_call(how: str) -> None:
    store = MemoryStore()
    async with runtime(store, permissions=vaka.Permissions(ask="suspend")) as rt:
        session = await suspend(rt)
        sealed = ID
        if how == "interrupt":
            await session.interrupt()
            with pytest.raises(vaka.TurnError):
                await session.resume().wait()
        elif how == "rewind":
            await session.rewind("2")
        else:
            sealed = (await session.fork(id="t")).id
        assert await rt.decisions(sealed) == []
        with pytest.raises(InvalidInput, match="no longer waits"):
            await rt.answer_call(sealed, "call_1", "x")
    log = await read_log(store, sealed)
    check_log(log)
    assert [event.type for event in log if event.type == "question.answered"] == []


async def test_rules_and_approvals_come_before_the_client() -> None:
    store, bot = MemoryStore(), client_agent()
    async with runtime(store, permissions=vaka.Permissions(ask="suspend", confirm=("pick",))) as rt:
        session = await suspend(rt, bot)
        [approval] = await rt.decisions(ID)
        assert approval.event.type == "approval.requested"
        assert await session.client_calls() == ()
        with pytest.raises(NotFound):
            await session.answer_call("call_1", "x")
        await rt.resolve(approval.id, "approve", edit={"name": "chart"})
        with pytest.raises(Suspended):
            await session.resume().wait()
        assert [waiting.arguments for waiting in await session.client_calls()] == [{"name": "chart"}]
        await session.answer_call("call_1", "chart.png")
        assert (await session.resume().wait()).text == "Thanks."
    async with runtime(store, permissions=vaka.Permissions(deny=("pick",))) as rt:
        denied = await rt.open(client_agent(), id="denied")
        await denied.run("Go.")
    assert results_by_call(await read_log(store, "denied"))["call_1"].reason in ("denied", "unknown_tool")


async def test_a_child_agent_can_use_a_tool_of_the_client() -> None:
    model = ScriptedModel(agents={"child": [call("pick", name="map"), say("Picked.")]})
    child = agent(model, ClientTool("pick", params=SCHEMA), name="child")
    store, bot = MemoryStore(), agent(ScriptedModel(call("child", prompt="Pick."), say("Done.")), child)
    async with runtime(store, permissions=vaka.Permissions(ask="suspend")) as rt:
        session = await suspend(rt, bot)
        [waiting] = await session.client_calls()
        assert waiting.id == "call_1.1"
        result = ToolResult(call=waiting.id, content=(vaka.Text(text="map.png"),), value={"path": "map.png"})
        await session.answer_call(waiting.id, result)
        assert (await session.resume().wait()).text == "Done."
    assert results_by_call(await read_log(store, ID))["call_1.1"] == result


@pytest.mark.parametrize(
    "arguments", [("",), ("x", "", {"type": "string"}), ("x", "", None, 0)], ids=["name", "schema", "time"]
)
def test_an_invalid_client_tool_is_refused(arguments: tuple[Any, ...]) -> None:
    expires_in = arguments[3] if len(arguments) > 3 else None
    with pytest.raises(InvalidInput):
        ClientTool(*arguments[:3], expires_in=expires_in)


def test_the_arguments_of_a_client_tool_are_validated() -> None:
    tool = ClientTool("pick a file", params=SCHEMA)
    assert (tool.spec.name, repr(tool)) == ("pick_a_file", "ClientTool('pick a file')")
    assert "name" in tool.parse("{}").message  # type: ignore[union-attr]  # the arguments are invalid
