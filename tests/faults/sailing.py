"""Run or resume the voyage in this process, and be the person who is asked."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

from tests.faults.voyage import KEY, SAYS, Ledger, Plan, agent, open_store, options
from vaka.core.ports.model import Model
from vaka.core.types.control import ApprovalRequested, QuestionAsked
from vaka.core.types.errors import NotFound, StoreError, Suspended
from vaka.core.types.event import Event
from vaka.runtime.runtime import Runtime
from vaka.runtime.session import Session

Show = Callable[[Event], None]


async def sail(plan: Plan, show: Show, model: Model | None = None) -> str:
    """Go on until nothing is left to do, or a person is needed; ``show`` gets every event, also those of decisions."""
    store, other = open_store(plan), open_store(plan)
    captain = agent(Ledger(plan.ledger, plan.die), plan.timeout, model)
    try:
        async with Runtime(options(plan, store)) as runtime, Runtime(options(plan, other)) as person:
            session = await runtime.open(captain, id=plan.session)
            for pending in await person.decisions(plan.session) if plan.decide else ():
                await decide(person, pending.event, plan, show)
            try:
                async with aclosing(events(session, plan)) as seen:
                    async for event in seen:
                        show(event)
                        if plan.decide:
                            await decide(person, event, plan, show)
            except Suspended as suspended:
                return f"suspended {' '.join(suspended.decisions)}"
            except StoreError as error:
                return error.code
            return "ended"
    finally:
        await store.close()
        await other.close()


async def events(session: Session, plan: Plan) -> AsyncGenerator[Event]:
    """Say the request or resume; a session that was never written is begun."""
    if plan.how == "resume":
        try:
            async with aclosing(session.resume()) as resumed:
                async for event in resumed:
                    yield event
        except NotFound:
            pass
        else:
            return
    async with aclosing(session.stream(SAYS, key=KEY)) as stream:
        async for event in stream:
            yield event


async def decide(person: Runtime, event: Event, plan: Plan, show: Show) -> None:
    """Decide what an event asks for; what was decided before may be shown again."""
    with suppress(NotFound):
        if isinstance(event.data, ApprovalRequested):
            show(await person.resolve(event.data.approval, "approve"))
        elif isinstance(event.data, QuestionAsked):
            show(await person.answer(event.data.question, _truth(event.data, plan)))


def _truth(asked: QuestionAsked, plan: Plan) -> dict[str, str]:
    if plan.decide != "ledger":
        return {"outcome": "leave it"}
    for name, call in Ledger(plan.ledger).count():
        if call == asked.call and name != "stamp":
            return {"outcome": "happened", "result": "it did"}
    return {"outcome": "did not happen"}
