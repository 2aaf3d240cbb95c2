"""The open decisions of a task, as a message of the agent, and the reply of the client."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from vaka.core.types import control
from vaka.core.types.control import Asked, decision_of
from vaka.core.types.decision_text import kind_of_decision, text_of_decision
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON, CallId
from vaka.core.types.message import ToolResult, as_content
from vaka.views.a2a.content import JsonObject, numbered_parts
from vaka.views.media import as_object

Decision: TypeAlias = control.ApprovalResolved | control.QuestionAnswered | ToolResult

_WORDS: dict[str, Literal["approve", "reject"]] = {
    "approve": "approve",
    "yes": "approve",
    "allow": "approve",
    "reject": "reject",
    "no": "reject",
    "deny": "reject",
}
_FORMS = {
    "approval": "{'id': '…', 'decision': 'approve' or 'reject'}, with 'message', 'edit' or 'scope'",
    "question": "{'id': '…', 'answer': …}",
    "result": "{'id': '…', 'result': …}, with 'failed': true for an error",
}


def parts_for(pending: Sequence[Asked]) -> list[JsonObject]:
    """Return a text for people and data for programs for each open approval, question and call of the client."""
    parts: list[JsonObject] = []
    for body in pending:
        parts += [{"text": text_of_decision(body).line}, {"data": _data_of(body), "mediaType": "application/json"}]
    return parts


def _data_of(body: Asked) -> JsonObject:
    data: JsonObject = {"id": decision_of(body), "kind": kind_of_decision(body)}
    if isinstance(body, control.ApprovalRequested):
        data |= {"tool": body.call.name, "arguments": body.call.arguments, "scopes": list(body.allowed_scopes)}
    else:
        data |= {"text": body.text, "options": list(body.options), "call": body.call}
    if body.expires:
        data["expires"] = body.expires
    return {name: value for name, value in data.items() if value not in (None, "", [])}


def read_reply(message: Any, pending: Sequence[Event]) -> list[Decision]:
    """Return the decisions in a message to a task that waits for input. Raises ``InvalidInput``.

    ``pending`` are the events of the open approvals and questions. A part with ``data`` names the decision by its
    ``id``. A text answers the only open question, or the only open approval with ``approve`` or ``reject``. The result
    of a call of the client is a ``ToolResult``.
    """
    asked: dict[str, Asked] = {
        decision_of(event.data): event.data for event in pending if isinstance(event.data, Asked)
    }
    decisions = [_read_part(part, place, asked) for place, part in numbered_parts(as_object(message))]
    if len({_decision_id(decision) for decision in decisions}) < len(decisions):
        raise InvalidInput("message: two parts decide the same")
    return decisions


def _decision_id(decision: Decision) -> str:
    match decision:
        case control.ApprovalResolved(approval=id) | control.QuestionAnswered(question=id):
            return id
        case ToolResult(call=id):
            return id


def _read_part(part: Any, place: str, asked: dict[str, Asked]) -> Decision:
    fields = as_object(part)
    data, text = as_object(fields.get("data")), fields.get("text")
    if data:
        if (body := asked.get(str(data.get("id")))) is None:
            raise InvalidInput(f"{place}: {data.get('id')!r} is not open; open are: {', '.join(asked) or 'none'}")
        return _read_data(body, data, place)
    if not isinstance(text, str) or len(asked) != 1:
        raise InvalidInput(f"{place}: 'data' must name one of the {len(asked)} open decisions by its 'id'")
    (body,) = asked.values()
    if isinstance(body, control.ApprovalRequested):
        if (decision := _WORDS.get(text.strip().rstrip(".!").lower())) is None:
            raise InvalidInput(f"{place}: the text must be 'approve' or 'reject'")
        return control.ApprovalResolved(approval=body.approval, decision=decision)
    answer = next((option for option in body.options if option.lower() == text.strip().lower()), text)
    return _answer(body, answer)


def _read_data(body: Asked, data: JsonObject, place: str) -> Decision:
    if isinstance(body, control.ApprovalRequested) and data.get("decision") in {"approve", "reject"}:
        return _read_approval(body, data, place)
    if isinstance(body, control.QuestionAsked):
        field = "result" if body.kind == "result" else "answer"
        if field in data:
            return _answer(body, data[field], failed=data.get("failed") is True)
    raise InvalidInput(f"{place}: 'data' must be {_FORMS[kind_of_decision(body)]}")


def _read_approval(body: control.ApprovalRequested, data: JsonObject, place: str) -> control.ApprovalResolved:
    fields: JsonObject = {name: data[name] for name in ("decision", "message", "edit", "scope") if name in data}
    fields["approval"] = body.approval
    try:
        decided = msgspec.convert(fields, control.ApprovalResolved)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{place}: {error}") from None
    if decided.decision == "approve" and decided.scope not in body.allowed_scopes:
        raise InvalidInput(f"{place}: 'scope' must be one of {', '.join(body.allowed_scopes)}")
    return decided


def _answer(body: control.QuestionAsked, answer: JSON, *, failed: bool = False) -> Decision:
    if body.kind != "result":
        return control.QuestionAnswered(question=body.question, answer=answer)
    is_text = isinstance(answer, str)
    text: str = answer if is_text else msgspec.json.encode(answer).decode()
    value = None if is_text else answer
    return ToolResult(call=CallId(body.call or ""), content=as_content(text), failed=failed, value=value)
