"""The documents of decisions that a session waits for, with the calls that its client has to run."""

from collections.abc import Sequence

from vaka.core.ports.store import PendingDecision, Store
from vaka.core.types.control import QuestionAsked
from vaka.core.types.message import ToolCall
from vaka.runtime.client_calls import read_client_calls
from vaka.server.rest.documents import DecisionDocument, decision_document


async def describe_decisions(
    store: Store, rows: Sequence[PendingDecision], *, agent: str
) -> tuple[DecisionDocument, ...]:
    """Return the documents of decisions of one session; the log is read only if a call waits for the client."""
    calls: dict[str, ToolCall] = {}
    if any(isinstance(row.event.data, QuestionAsked) and row.event.data.kind == "result" for row in rows):
        calls = {call.id: call for call in await read_client_calls(store, rows[0].session)}

    def find_call(row: PendingDecision) -> ToolCall | None:
        body = row.event.data
        return calls.get(body.call or "") if isinstance(body, QuestionAsked) else None

    return tuple(decision_document(row, agent=agent, client_call=find_call(row)) for row in rows)
