"""The words of an open decision. Every door shows these; a change of the wording is a change of this file."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from vaka.core.types.control import APPROVAL_SCOPES, ApprovalRequested, ApprovalScope, Asked, QuestionAsked
from vaka.core.types.message import ToolCall
from vaka.core.types.tool import PROTECTED_LAYER
from vaka.core.types.traits import ToolTraits, find_builtin_traits

DecisionKind: TypeAlias = Literal["approval", "question", "result"]
"""``result``: a call waits for the client that offers the tool; no person decides it."""


class Translate(Protocol):
    """Returns a text in the language of the user, with ``{name}`` replaced by the value of that name."""

    def __call__(self, text: str, /, **values: object) -> str: ...


def in_english(text: str, /, **values: object) -> str:
    return text.format_map(values) if values else text


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One way to decide."""

    id: str
    """``approve``, ``approve_session``, ``approve_project``, ``approve_user``, ``edit`` or ``reject``; of a question
    the number of an option, from 1."""
    label: str
    """The words of a button."""
    brief: str = ""
    """The words beside a key."""
    scope: ApprovalScope = "once"
    lasts: str = ""
    """How long an approval holds, if it holds for more than the call."""


class DecisionText(msgspec.Struct, frozen=True, kw_only=True):
    """What a person reads before deciding."""

    kind: DecisionKind
    title: str
    question: str = ""
    call: str = ""
    """The call in one line: its tool and all of its arguments."""
    reason: str = ""
    """Why an approval is asked for."""
    risk: str = ""
    facts: tuple[str, ...] = ()
    """The agent that asks, and the risk of the call."""
    folder: str = ""
    """Where a command starts, if that is not the working folder."""
    details: tuple[str, ...] = ()
    """What else there is to know, each on a line: a message, why the policy asks, the rule, who gives a result."""
    choices: tuple[Choice, ...] = ()

    @property
    def line(self) -> str:
        """All of it in one line, for a chat."""
        if self.kind == "approval":
            return f"{self.call} needs an approval{f' ({self.reason})' if self.reason else ''}."
        options = ", ".join(choice.label for choice in self.choices)
        return f"{self.question} ({options})" if options else self.question


def kind_of_decision(body: Asked) -> DecisionKind:
    if isinstance(body, ApprovalRequested):
        return "approval"
    return "result" if body.kind == "result" else "question"


def call_line(call: ToolCall) -> str:
    """Return a call in one line: its tool, and its arguments as JSON or as the model wrote them if they are not."""
    return f"{call.name} {call.raw or msgspec.json.encode(call.arguments).decode()}"


def text_of_decision(
    body: Asked, *, traits: ToolTraits | None = None, call: ToolCall | None = None, translate: Translate = in_english
) -> DecisionText:
    """Return the words of an approval, a question or a client call.

    ``traits`` belong to the tool of an approval; default: the traits of the built-in tool with its name. ``call`` is
    the call that a client runs.
    """
    if isinstance(body, ApprovalRequested):
        return _text_of_approval(body, traits or find_builtin_traits(body.call.name), translate)
    if body.kind == "result":
        name = call.name if call is not None else translate("this tool")
        return DecisionText(
            kind="result",
            title=translate("Waiting for a client"),
            question=body.text,
            call=call_line(call) if call is not None else "",
            details=(
                translate("The program that offers {tool} runs it and sends the result.", tool=name),
                translate("If that program is gone, stop the turn or give the result here."),
            ),
        )
    options = (Choice(id=str(number), label=option) for number, option in enumerate(body.options, 1))
    return DecisionText(
        kind="question", title=translate("A question for you"), question=body.text, choices=tuple(options)
    )


def _text_of_approval(body: ApprovalRequested, traits: ToolTraits, translate: Translate) -> DecisionText:
    risk = _risk_of(body, traits, translate)
    is_new_rule = body.rule and body.rule not in body.reason
    details = (
        body.message,
        translate("Why: {reason}", reason=body.reason) if body.reason else "",
        translate("Asked by: {rule}", rule=body.rule) if is_new_rule else "",
    )
    agent = (translate("agent {name}", name=body.agent),) if body.agent else ()
    return DecisionText(
        kind="approval",
        title=translate("Approve {tool}?", tool=body.call.name),
        call=call_line(body.call),
        reason=body.message or body.reason,
        risk=risk,
        facts=(*agent, translate("risk {risk}", risk=risk)),
        folder=translate("in {folder}", folder=body.folder) if body.folder else "",
        details=tuple(line for line in details if line),
        choices=tuple(_choices_of(body, translate)),
    )


def _choices_of(body: ApprovalRequested, translate: Translate) -> list[Choice]:
    may = body.decisions or ("approve", "edit", "reject")
    briefs: dict[ApprovalScope, tuple[str, str]] = {
        "session": (translate("session"), translate("this session")),
        "project": (translate("project"), translate("all sessions of the user in this folder")),
        "user": (translate("always"), translate("all sessions of the user")),
    }
    choices: list[Choice] = []
    if "approve" in may:
        choices.append(Choice(id="approve", label=translate("Approve once"), brief=translate("once")))
        rules = ", ".join(body.grant.splitlines())
        for scope in APPROVAL_SCOPES:
            if scope in briefs and scope in body.allowed_scopes:
                brief, lasts = briefs[scope]
                label = translate("Approve {rules} for {lasts}", rules=rules, lasts=lasts)
                choices.append(Choice(id=f"approve_{scope}", label=label, brief=brief, scope=scope, lasts=lasts))
    if "edit" in may:
        choices.append(Choice(id="edit", label=translate("Edit the arguments"), brief=translate("edit arguments")))
    return [*choices, Choice(id="reject", label=translate("Reject"), brief=translate("no, with feedback"))]


def _risk_of(body: ApprovalRequested, traits: ToolTraits, translate: Translate) -> str:
    """Return the risk of a call in a few words: by what asks, else by the effect of the tool."""
    by_layer = {
        PROTECTED_LAYER: translate("high: it changes what runs later, or what is allowed"),
        "guard": translate("high: it may destroy a lot"),
        "sandbox": translate("high: it runs without the sandbox"),
        "network": translate("it may send data to the host"),
        "syntax": translate("unknown: its effect cannot be determined beforehand"),
    }
    by_effect = {
        "read": translate("low: it only reads"),
        "idempotent": translate("it changes something; doing it twice is like doing it once"),
        "resume": translate("it continues by itself, and each of its steps is judged"),
    }
    if found := by_layer.get(body.layer) or by_effect.get(body.effect):
        return found
    if traits.command:
        return translate("it may change something; only files of the workspace can be restored")
    return translate("it may change something, and cannot be undone here")


def question_form(body: QuestionAsked) -> dict[str, Any]:
    """Return the JSON Schema of a form for the answer to a question; ``read_question_form`` reads it."""
    answer: dict[str, Any] = {"type": "string", "title": "Answer"}
    if not body.options:
        return {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    choice = {"type": "string", "enum": list(body.options), "title": "Choice"}
    own = {"type": "string", "title": "In your own words", "description": "Instead of a choice, or several of them."}
    return {"type": "object", "properties": {"choice": choice, "answer": own}}


def read_question_form(fields: Mapping[str, Any]) -> str | None:
    """Return the answer in a submitted form, ``None`` if it has none."""
    given = (fields.get(name) for name in ("answer", "choice"))
    return next((text for text in given if isinstance(text, str) and text.strip()), None)


APPROVAL_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "enum": ["approve", "reject"], "title": "Decision"},
        "reason": {
            "type": "string",
            "title": "Reason",
            "description": "Why not: the agent reads it and goes on. Without a reason a rejection ends the turn.",
        },
    },
    "required": ["decision"],
}
"""The JSON Schema of a form for an approval."""
