"""The journal of a script inside a call: answers are replayed after a crash, and no request is executed twice."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import (
    agent,
    check_log,
    collect,
    event_types,
    last_body,
    log_writer,
    read_log,
    reasons_by_call,
    results_by_call,
    runtime,
)
from vaka.config.options import Storage
from vaka.core.loop.script_journal import (
    ScriptAnswer,
    ScriptJournal,
    ScriptRequest,
    mismatch_error,
)
from vaka.core.loop.subagent import open_script_journal, record_script_end
from vaka.core.loop.wait import DecisionPending
from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import Suspended
from vaka.core.types.ids import digest_of
from vaka.core.types.progress import SubagentCompleted, ToolStarted
from vaka.runtime.options import Environment, policy_from_rules
from vaka.runtime.session import Session
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, say

Round = dict[str, Any]
ROUNDS: list[Round] = [
    {"look": {"at": "a"}},
    {"pay": {"amount": 1}, "put": {"value": "x"}, "look": {"at": "b"}},
    {"model": "Who?", "time": None},
    {"large": "z" * 40_000},
    {"sign": {}, "fail": {}},
]
"""A script: the requests of a round are made at once, the next round when all are answered."""
ONCE = {"pay", "sign"}


class ScriptWorld:
    """Tools for a script, and what was done with them."""

    def __init__(self, rounds: list[Round] = ROUNDS, code: str = "v1") -> None:
        self.rounds, self.code = rounds, digest_of(code)
        self.done: list[str] = []
        self.asked: list[tuple[str, int]] = []
        self.clocks: list[int] = []

    def agent(self, model: ScriptedModel | None = None) -> vaka.Agent:
        @vaka.tool(effect="read")
        async def look(at: str) -> str:
            """Look."""
            return f"seen {at}"

        @vaka.tool(effect="idempotent")
        async def put(context: ToolContext, value: str) -> dict[str, str]:
            """Put."""
            self.done.append(context.key)
            return {"put": value}

        @vaka.tool
        async def pay(context: ToolContext, amount: int) -> str:
            """Pay."""
            self.done.append(context.key)
            return f"paid {amount}"

        @vaka.tool
        async def sign(context: ToolContext) -> str:
            """Sign, if a person lets you."""
            self.done.append(context.key)
            return "signed"

        @vaka.tool(effect="read")
        async def fail() -> str:
            """Fail."""
            raise ValueError("no luck")

        @vaka.tool(effect="resume")
        async def script(context: ToolContext) -> Any:
            """Run the script."""
            async with open_script_journal(context, "script", self.code, {}) as (nest, before):
                if before is not None:
                    return before.value
                value = await self.play_rounds(nest)
                await record_script_end(context, nest, "script", value)
                return value

        return agent(model or ScriptedModel(call("script"), say("all done")), look, put, pay, sign, fail, script)

    async def play_rounds(self, nest: ScriptJournal) -> list[Any]:
        """Run the rounds, starting after the recorded answers."""
        self.clocks.append(nest.record_start({"seed": 7}).at)
        answers: dict[int, ScriptAnswer] = {answer.request.number: answer async for answer in nest.replay()}
        number, values = 0, list[Any]()
        for play in self.rounds:
            asked: list[ScriptRequest] = []
            for name, arguments in play.items():
                number += 1
                asked.append(ScriptRequest.from_arguments(number, name, arguments))
                if number in answers and answers[number].request != asked[-1]:
                    raise mismatch_error(asked[-1], answers[number].request.name)
            new = [request for request in asked if request.number not in answers]
            ends = await asyncio.gather(
                *(self.answer(nest, request, play[request.name]) for request in new), return_exceptions=True
            )
            waits = [end for end in ends if isinstance(end, DecisionPending)]
            for request, end in zip(new, ends, strict=True):
                if not isinstance(end, DecisionPending):
                    assert not isinstance(end, BaseException), end
                    result = end if isinstance(end, vaka.ToolResult) else None
                    answers[request.number] = await nest.record_answer(request, None if result else end, result=result)
            await nest.commit()
            if waits:
                raise DecisionPending(*[decision for wait in waits for decision in wait.decisions])
            values.append([answer_of(answers[request.number]) for request in asked])
        return values

    async def answer(self, nest: ScriptJournal, request: ScriptRequest, arguments: Any) -> Any:
        if request.name == "model":
            self.asked.append((arguments, nest.model_call_number(request)))
            return "me"
        if request.name == "time":
            return nest.now_ms
        if request.name == "large":
            return arguments
        return await nest.call_tool(request, request.name, arguments)


def answer_of(answer: ScriptAnswer) -> Any:
    if answer.result is not None:
        return answer.result.text if answer.result.failed or answer.result.value is None else answer.result.value
    return answer.value if not isinstance(answer.value, str) else answer.value[:9]


RULES = policy_from_rules(ask=["sign"])


async def run_to_end(rt: Any, session: Session, begin: Any) -> None:
    while True:
        try:
            await collect(begin)
        except Suspended:
            for row in await rt.decisions():
                if row.event.type == "approval.requested":
                    await rt.resolve(row.id, "approve")
                else:
                    await rt.answer(row.id, "leave it")
            begin = session.resume()
        else:
            return


async def run_script(
    world: ScriptWorld, prefix: list[Any] | None = None, large: bytes = b'"' + b"z" * 40_000 + b'"'
) -> list[Any]:
    """Run the script, or go on with it, to the end; return the log."""
    store = MemoryStore()
    await store.blobs.put(large)
    async with runtime(
        store,
        permissions=vaka.Permissions(policy=RULES, ask="suspend"),
        environment=Environment(clock=FakeClock(auto=True)),
    ) as rt:
        if prefix is not None:
            await log_writer(store, "s", prefix)()
        session = await rt.open(world.agent(), id="s")
        await run_to_end(rt, session, session.resume() if prefix else session.stream("Go."))
    log = await read_log(store, "s")
    check_log(log)
    return log


def result_of(log: list[Any]) -> Any:
    return next(event.data.value for event in log if isinstance(event.data, SubagentCompleted))


async def test_a_script_receives_its_answers_in_order() -> None:
    world = ScriptWorld()
    log = await run_script(world)
    assert result_of(log) == [
        ["seen a"],
        ["paid 1", {"put": "x"}, "seen b"],
        ["me", world.clocks[0]],
        ["zzzzzzzzz"],
        ["signed", "ValueError: no luck"],
    ]
    assert last_body(log).text == "all done"
    assert world.asked == [("Who?", 1)]
    assert [e.data.name for e in log if e.type == "script.answered"][:2] == ["start", "look"]
    assert all(e.path == ("agent-1",) for e in log if e.type.startswith("script."))


async def test_the_model_calls_of_a_script_are_numbered_through() -> None:
    world = ScriptWorld([{"model": "Who?"}, {"model": "Why?"}, {"model": "When?"}])
    await run_script(world)
    assert world.asked == [("Who?", 1), ("Why?", 2), ("When?", 3)]


async def test_the_model_calls_of_a_second_script_are_numbered_after_those_of_the_first() -> None:
    world = ScriptWorld([{"model": "Who?"}, {"model": "Why?"}])
    store = MemoryStore()
    async with runtime(store, environment=Environment(clock=FakeClock(auto=True))) as rt:
        session = await rt.open(
            world.agent(model=ScriptedModel(call("script"), say("one"), call("script"), say("two"))), id="s"
        )
        await collect(session.stream("Go."))
        await collect(session.stream("Again."))
    assert world.asked == [("Who?", 1), ("Why?", 2), ("Who?", 3), ("Why?", 4)]


async def test_a_read_call_of_a_script_forces_no_write() -> None:
    world = ScriptWorld([{"look": {"at": str(number)}} for number in range(3)])

    world.play_rounds = _without_commits(world)  # type: ignore[method-assign,assignment]  # for once without its commits
    store = MemoryStore()
    async with runtime(
        store, permissions=vaka.Permissions(policy=RULES), environment=Environment(clock=FakeClock(auto=True))
    ) as rt:
        await collect((await rt.open(world.agent(), id="s")).stream("Go."))
    log = await read_log(store, "s")
    stamps = {event.type: event.ts for event in log}
    assert event_types(log).count("tool.completed") == 4
    assert stamps["script.answered"] == stamps["subagent.completed"]


def _without_commits(world: ScriptWorld) -> Callable[[ScriptJournal], Any]:
    async def play(nest: ScriptJournal) -> list[Any]:
        nest.record_start({})
        values = list[Any]()
        for number, play in enumerate(world.rounds, 1):
            request = ScriptRequest.from_arguments(number, "look", play["look"])
            result = await nest.call_tool(request, "look", play["look"])
            values.append(answer_of(await nest.record_answer(request, None, result=result)))
        return values

    return play


async def test_a_script_cut_off_after_any_event_comes_to_its_end() -> None:
    log = await run_script(ScriptWorld())
    for cut in range(3, len(log)):
        world, prefix = ScriptWorld(), log[:cut]
        after = await run_script(world, prefix)
        assert last_body(after).type == "turn.completed", cut
        begun = {e.data.key for e in prefix if isinstance(e.data, ToolStarted) and e.data.call.name in ONCE}
        assert not begun & set(world.done), f"something happened twice after event {cut}"
        lost = {key.split("/")[1] for key in begun} - set(results_by_call(prefix))
        assert {call for call, why in reasons_by_call(after).items() if why == "outcome_unknown"} == lost
        if not lost and "tool.called" in event_types(prefix):
            assert result_of(after)[:2] == result_of(log)[:2], cut
            assert result_of(after)[3:] == result_of(log)[3:], cut
        answers = [(e.data.number, e.data.digest) for e in after if e.type == "script.answered"]
        assert len(answers) == len(set(answers)), f"answered twice after event {cut}"
        assert [model for _, model in world.asked] in ([], [1])


async def test_another_script_is_refused_and_nothing_of_it_runs() -> None:
    log = await run_script(ScriptWorld())
    cut = event_types(log).index("script.answered") + 2
    world = ScriptWorld(code="v2")
    after = await run_script(world, log[:cut])
    assert "not those this run began with" in results_by_call(after)["call_1"].text
    assert world.done == []


async def test_a_script_that_asks_for_something_else_is_refused() -> None:
    log = await run_script(ScriptWorld())
    answered = [number for number, event in enumerate(log) if event.type == "script.answered"]
    world = ScriptWorld([{"look": {"at": "elsewhere"}}, *ROUNDS[1:]])
    after = await run_script(world, log[: answered[1] + 1])
    assert "request 1 is 'look' now, and was 'look' or had other arguments" in results_by_call(after)["call_1"].text
    begun = event_types(log).index("script.called")
    after = await run_script(ScriptWorld([{"put": {"value": "a"}}]), log[: begun + 3])
    assert "request 1 is 'put' now, and was 'look'" in results_by_call(after)["call_1"].text


async def test_a_script_whose_answers_were_erased_is_not_run_again() -> None:
    log = await run_script(ScriptWorld())
    cut = next(number for number, event in enumerate(log, 1) if event.type == "script.answered" and event.data.blob)
    after = await run_script(ScriptWorld(), log[:cut], large=b"null")
    assert "ReplayError: what 'large' was answered as request 7 was erased" in results_by_call(after)["call_1"].text


async def test_a_script_needs_the_context_of_a_call() -> None:
    with pytest.raises(vaka.VakaError, match="context of the call"):
        async with open_script_journal(object(), "script", digest_of("x"), {}):  # type: ignore[arg-type]  # on purpose
            raise AssertionError


async def test_registered_secrets_are_redacted_for_a_script_as_in_the_log() -> None:
    store, world = MemoryStore(), ScriptWorld([{"large": "hunter22"}])
    async with runtime(
        store, storage=Storage(secrets=("hunter22",)), environment=Environment(clock=FakeClock(auto=True))
    ) as rt:
        await collect((await rt.open(world.agent(), id="s")).stream("Go."))
    assert result_of(await read_log(store, "s")) == [["[redacted"]]
