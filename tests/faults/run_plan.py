"""Run or resume the crash-test agent in this process, and answer the decisions it asks for."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

from tests.faults.crash_run import REQUEST, REQUEST_KEY, EffectLedger, Plan, make_agent, make_runtime, open_store
from vaka.core.ports.model import Model
from vaka.core.types.control import ApprovalRequested, QuestionAsked
from vaka.core.types.errors import NotFound, StoreError, Suspended
from vaka.core.types.event import Event
from vaka.runtime.runtime import Runtime
from vaka.runtime.session import Session

EventSink = Callable[[Event], None]


async def run_plan(plan: Plan, on_event: EventSink, model: Model | None = None) -> str:
    """Run to the end of the turn, or until a person is needed; ``on_event`` gets every event, also of decisions."""
    store, other = open_store(plan), open_store(plan)
    captain = make_agent(EffectLedger(plan.ledger, plan.die), plan.timeout, model)
    try:
        async with make_runtime(plan, store) as runtime, make_runtime(plan, other) as person:
            session = await runtime.open(captain, id=plan.session)
            for pending in await person.decisions(plan.session) if plan.decide else ():
                await answer_decision(person, pending.event, plan, on_event)
            try:
                async with aclosing(stream_or_resume(session, plan)) as seen:
                    async for event in seen:
                        on_event(event)
                        if plan.decide:
                            await answer_decision(person, event, plan, on_event)
            except Suspended as suspended:
                return f"suspended {' '.join(suspended.decisions)}"
            except StoreError as error:
                return error.code
            return "ended"
    finally:
        await store.close()
        await other.close()


async def stream_or_resume(session: Session, plan: Plan) -> AsyncGenerator[Event]:
    """Send the request or resume; a session that was never written is begun."""
    if plan.how == "resume":
        try:
            async with aclosing(session.resume()) as resumed:
                async for event in resumed:
                    yield event
        except NotFound:
            pass
        else:
            return
    async with aclosing(session.stream(REQUEST, key=REQUEST_KEY)) as stream:
        async for event in stream:
            yield event


async def answer_decision(person: Runtime, event: Event, plan: Plan, on_event: EventSink) -> None:
    """Make the decision that an event asks for; it may have been made before."""
    with suppress(NotFound):
        if isinstance(event.data, ApprovalRequested):
            on_event(await person.resolve(event.data.approval, "approve"))
        elif isinstance(event.data, QuestionAsked):
            on_event(await person.answer(event.data.question, _outcome_of(event.data, plan)))


def _outcome_of(asked: QuestionAsked, plan: Plan) -> dict[str, str]:
    if plan.decide != "ledger":
        return {"outcome": "leave it"}
    for name, call in EffectLedger(plan.ledger).count_effects():
        if call == asked.call and name != "stamp":
            return {"outcome": "happened", "result": "it did"}
    return {"outcome": "did not happen"}
