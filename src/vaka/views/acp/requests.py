"""Approvals and questions as requests to a client of the Agent Client Protocol, and its answers."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from vaka.core.types import control
from vaka.core.types.decision_text import Choice, question_form, read_question_form, text_of_decision
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Event
from vaka.core.types.traits import ToolTraits
from vaka.views.acp.content import JsonObject, text_content
from vaka.views.acp.tool_calls import ToolKind, describe_call, shorten
from vaka.views.media import as_object, read_field

_KINDS = {"approve": "allow_once", "reject": "reject_once"}
"""The kinds of options by the id of their choices; the others are ``allow_always``."""


class AcpRequest(msgspec.Struct, frozen=True):
    """A request to the client: ``session/request_permission`` or ``elicitation/create``."""

    method: str
    params: JsonObject


def request_of(
    event: Event,
    *,
    elicitation: bool = False,
    kinds: Mapping[str, ToolKind] | None = None,
    traits: Mapping[str, ToolTraits] | None = None,
) -> AcpRequest | None:
    """Return the request for an approval or a question, of the agent or of its child agents; ``None`` for other events.

    ``elicitation`` is whether the client shows forms. Without forms it can be asked only questions with options.
    ``kinds`` and ``traits`` describe tools that are not built in.
    """
    match event.data:
        case control.ApprovalRequested() as approval:
            call = describe_call(approval.call, effect=approval.effect, root=approval.cwd, kinds=kinds, traits=traits)
            if text := text_of_decision(approval).reason:
                call["content"] = [text_content(text), *call.get("content", ())]
            call["status"] = "pending"
            options = [
                {"optionId": id, "name": choice.label, "kind": _KINDS.get(id, "allow_always")}
                for id, choice in _choices_of(approval).items()
            ]
        case control.QuestionAsked(kind="result"):  # for a client that has tools of its own
            return None
        case control.QuestionAsked() as question if elicitation:
            form = {"sessionId": event.session, "mode": "form", "message": question.text}
            return AcpRequest("elicitation/create", form | {"requestedSchema": question_form(question)})
        case control.QuestionAsked(options=(_, *_)) as question:
            call = {
                "toolCallId": question.call or question.question,
                "title": shorten(question.text),
                "content": [text_content(question.text)],
            }
            options = [
                {"optionId": id, "name": choice.label, "kind": "allow_once"}
                for id, choice in _choices_of(question).items()
            ]
        case _:
            return None
    params = {"sessionId": event.session, "toolCall": call, "options": options}
    return AcpRequest("session/request_permission", params)


def _choices_of(body: control.Asked) -> dict[str, Choice]:
    """Return the choices of a person by their ids; a client cannot edit the arguments of a call."""
    return {choice.id: choice for choice in text_of_decision(body).choices if choice.id != "edit"}


def read_answer(event: Event, result: Any) -> control.ApprovalResolved | control.QuestionAnswered | None:
    """Return the decision in the result of a request that was made of ``event``. Raises ``InvalidInput``.

    ``None``: the client has cancelled the turn, and nothing was decided. A declined form is the answer ``None``.
    """
    body = event.data
    fields = as_object(result)
    if isinstance(body, control.QuestionAsked) and "action" in fields:
        return control.QuestionAnswered(question=body.question, answer=_read_form(fields))
    outcome = fields.get("outcome")
    if (chosen := read_field(outcome, "outcome", "outcome")) == "cancelled":
        return None
    if chosen != "selected":
        raise InvalidInput(f"outcome: {chosen!r} is not 'selected' or 'cancelled'")
    option = read_field(outcome, "optionId", "outcome")
    chosen_from = _choices_of(body) if isinstance(body, control.Asked) else {}
    if (choice := chosen_from.get(option)) is not None:
        if isinstance(body, control.QuestionAsked):
            return control.QuestionAnswered(question=body.question, answer=choice.label)
        if isinstance(body, control.ApprovalRequested):
            decision: Literal["approve", "reject"] = "reject" if option == "reject" else "approve"
            return control.ApprovalResolved(approval=body.approval, decision=decision, scope=choice.scope)
    raise InvalidInput(f"outcome: {option!r} is not an option of the request")


def _read_form(result: JsonObject) -> str | None:
    match result["action"]:
        case "decline" | "cancel":
            return None
        case "accept":
            answer = read_question_form(as_object(result.get("content")))
            if answer is None:
                raise InvalidInput("content: 'answer' must be a text that is not blank")
            return answer
        case other:
            raise InvalidInput(f"action: {other!r} is not 'accept', 'decline' or 'cancel'")
