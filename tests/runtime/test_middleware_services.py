"""Middleware that needs services of the runtime."""

from collections.abc import Sequence

import vaka
from tests.runtime.runtime_fixtures import agent, read_log, runtime
from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.agent import AgentServices
from vaka.core.types.ending import Outcome
from vaka.core.types.ids import SessionId
from vaka.core.types.progress import MessageCompleted, TurnCompleted
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, say


class Reviewed(Middleware):
    """Has each answer reviewed in another session."""

    def __init__(self, reviewer: "vaka.Agent[None]", services: AgentServices | None = None) -> None:
        self.reviewer, self.services = reviewer, services

    def with_services(self, services: AgentServices) -> "Reviewed":
        return Reviewed(self.reviewer, services)

    async def after_agent(self, turn: Turn, outcome: Outcome) -> Outcome:
        assert self.services is not None
        [vector] = await self.services.find_embedder("hashing:16").embed([outcome.text])
        for _ in range(2):  # the key makes the second one the first
            prompt = f"{outcome.text} ({len(vector)} numbers)"
            await self.services.submit(self.reviewer, "review", prompt, key=turn.id, owner="ann")
        return outcome


async def test_a_middleware_submits_an_input_of_another_session_once() -> None:
    reviewer = vaka.Agent("reviewer", model=ScriptedModel(say("Well said.")))
    store = MemoryStore()
    async with runtime(store=store) as rt:
        answering = agent(ScriptedModel(say("Rain.")), middleware=[Reviewed(reviewer)])
        response = await (await rt.open(answering, id="weather")).run("Tomorrow?")
        assert response.text == "Rain."
    events: Sequence[object] = [event.data for event in await read_log(store, "review")]
    assert [type(body) for body in events if isinstance(body, MessageCompleted | TurnCompleted)] == [
        MessageCompleted,
        TurnCompleted,
    ]
    info = await store.sessions.find(SessionId("review"))
    assert info is not None
    assert (info.owner, info.title) == ("ann", "Rain. (16 numbers)")
