"""Approvals and questions as requests to a client of the Agent Client Protocol, and its answers."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from vaka.core.types import control
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Event
from vaka.core.types.traits import ToolTraits
from vaka.views.acp.content import JsonObject, text_content
from vaka.views.acp.tool_calls import ToolKind, describe_call, shorten
from vaka.views.media import as_object, read_field

_SCOPE_NAMES = {"session": "for this session", "project": "always in this project", "user": "always"}


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
            if text := approval.message or approval.reason:
                call["content"] = [text_content(text), *call.get("content", ())]
            call["status"] = "pending"
            options = [
                {"optionId": id, "name": name, "kind": kind}
                for id, (kind, name, _) in _permission_options(approval).items()
            ]
        case control.QuestionAsked(kind="result"):  # for a client that has tools of its own
            return None
        case control.QuestionAsked() as question if elicitation:
            form = {"sessionId": event.session, "mode": "form", "message": question.text}
            return AcpRequest("elicitation/create", form | {"requestedSchema": _question_form(question)})
        case control.QuestionAsked(options=(_, *_)) as question:
            call = {
                "toolCallId": question.call or question.question,
                "title": shorten(question.text),
                "content": [text_content(question.text)],
            }
            options = [
                {"optionId": str(number), "name": option, "kind": "allow_once"}
                for number, option in enumerate(question.options, 1)
            ]
        case _:
            return None
    params = {"sessionId": event.session, "toolCall": call, "options": options}
    return AcpRequest("session/request_permission", params)


def _permission_options(
    approval: control.ApprovalRequested,
) -> dict[str, tuple[str, str, control.ApprovalScope]]:
    """Return the kind, the name and the scope of each option by its id."""
    options: dict[str, tuple[str, str, control.ApprovalScope]] = {}
    if not approval.decisions or "approve" in approval.decisions:
        options["approve"] = ("allow_once", "Allow once", "once")
        rules = ", ".join(approval.grant.splitlines())
        for scope in control.APPROVAL_SCOPES[1:]:
            if scope in approval.allowed_scopes:
                name = f"Allow {rules} {_SCOPE_NAMES[scope]}"
                options[f"approve_{scope}"] = ("allow_always", name, scope)
    options["reject"] = ("reject_once", "Reject", "once")
    return options


def _question_form(question: control.QuestionAsked) -> JsonObject:
    if not question.options:
        return {
            "type": "object",
            "properties": {"answer": {"type": "string", "title": "Answer"}},
            "required": ["answer"],
        }
    choice = {"type": "string", "title": "Answer", "enum": list(question.options)}
    return {"type": "object", "properties": {"answer": choice, "other": {"type": "string", "title": "Another answer"}}}


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
    if isinstance(body, control.ApprovalRequested):
        if (known := _permission_options(body).get(option)) is not None:
            decision: Literal["approve", "reject"] = "reject" if option == "reject" else "approve"
            return control.ApprovalResolved(approval=body.approval, decision=decision, scope=known[2])
    elif isinstance(body, control.QuestionAsked):
        answers = {str(number): answer for number, answer in enumerate(body.options, 1)}
        if option in answers:
            return control.QuestionAnswered(question=body.question, answer=answers[option])
    raise InvalidInput(f"outcome: {option!r} is not an option of the request")


def _read_form(result: JsonObject) -> str | None:
    match result["action"]:
        case "decline" | "cancel":
            return None
        case "accept":
            content = as_object(result.get("content"))
            given = (content.get(name) for name in ("other", "answer"))
            answer = next((text for text in given if isinstance(text, str) and text.strip()), None)
            if answer is None:
                raise InvalidInput("content: 'answer' must be a text that is not blank")
            return answer
        case other:
            raise InvalidInput(f"action: {other!r} is not 'accept', 'decline' or 'cancel'")
