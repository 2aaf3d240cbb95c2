"""The words of an open decision, which every door shows."""

from typing import Any

import pytest
from inline_snapshot import snapshot

from vaka.core.types.control import ApprovalRequested, QuestionAsked
from vaka.core.types.decision_text import Choice, DecisionText, question_form, read_question_form, text_of_decision
from vaka.core.types.ids import CallId, DecisionId, Digest
from vaka.core.types.message import ToolCall
from vaka.core.types.traits import ToolTraits

CALL = ToolCall(id=CallId("call_1"), name="deploy", arguments={"place": "here"})


def approval(**fields: Any) -> ApprovalRequested:
    given: dict[str, Any] = {"call": CALL, **fields}
    return ApprovalRequested(approval=DecisionId("apr_1"), digest=Digest("d"), spec=Digest("s"), **given)


def question(**fields: Any) -> QuestionAsked:
    return QuestionAsked(question=DecisionId("qst_1"), **fields)


def test_an_approval_has_a_title_its_reasons_and_a_choice_for_each_scope() -> None:
    body = approval(
        reason="no rule matches", rule="deploy", message="Mind the tide.", agent="mate", folder="/app", grant="deploy"
    )
    assert text_of_decision(body) == snapshot(
        DecisionText(
            kind="approval",
            title="Approve deploy?",
            call='deploy {"place":"here"}',
            reason="Mind the tide.",
            risk="it may change something, and cannot be undone here",
            facts=("agent mate", "risk it may change something, and cannot be undone here"),
            folder="in /app",
            details=("Mind the tide.", "Why: no rule matches", "Asked by: deploy"),
            choices=(
                Choice(id="approve", label="Approve once", brief="once"),
                Choice(
                    id="approve_session",
                    label="Approve deploy for this session",
                    brief="session",
                    scope="session",
                    lasts="this session",
                ),
                Choice(
                    id="approve_project",
                    label="Approve deploy for all sessions of the user in this folder",
                    brief="project",
                    scope="project",
                    lasts="all sessions of the user in this folder",
                ),
                Choice(
                    id="approve_user",
                    label="Approve deploy for all sessions of the user",
                    brief="always",
                    scope="user",
                    lasts="all sessions of the user",
                ),
                Choice(id="edit", label="Edit the arguments", brief="edit arguments"),
                Choice(id="reject", label="Reject", brief="no, with feedback"),
            ),
        )
    )


def test_a_rejection_is_always_a_choice_and_others_only_if_they_are_allowed() -> None:
    def ids(**fields: Any) -> list[str]:
        return [choice.id for choice in text_of_decision(approval(**fields)).choices]

    assert ids(decisions=("edit",)) == ["edit", "reject"]
    assert ids(decisions=("approve",), grant="deploy", scopes=("session",)) == ["approve", "approve_session", "reject"]
    assert ids() == ["approve", "edit", "reject"]


def test_the_traits_of_a_tool_that_is_not_built_in_decide_its_risk() -> None:
    runs_commands = ToolTraits(commands=True, command="line")
    assert text_of_decision(approval(), traits=runs_commands).risk == (
        "it may change something; only files of the workspace can be restored"
    )


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (approval(), 'deploy {"place":"here"} needs an approval.'),
        (approval(reason="money"), 'deploy {"place":"here"} needs an approval (money).'),
        (question(text="Which?", options=("red", "blue")), "Which? (red, blue)"),
        (question(text="Why?"), "Why?"),
    ],
)
def test_a_chat_gets_a_decision_in_one_line(body: ApprovalRequested | QuestionAsked, line: str) -> None:
    assert text_of_decision(body).line == line


def test_a_call_of_a_client_says_who_gives_its_result() -> None:
    body = question(text="Run deploy and answer with its result.", kind="result", call=CALL.id)
    text = text_of_decision(body, call=CALL)
    assert (text.kind, text.title, text.call) == ("result", "Waiting for a client", 'deploy {"place":"here"}')
    assert text.details == (
        "The program that offers deploy runs it and sends the result.",
        "If that program is gone, stop the turn or give the result here.",
    )
    assert text_of_decision(body).details[0] == "The program that offers this tool runs it and sends the result."


def test_the_words_are_translated_with_their_values() -> None:
    def shout(text: str, /, **values: object) -> str:
        return text.upper().replace("{TOOL}", str(values.get("tool")))

    text = text_of_decision(approval(), translate=shout)
    assert (text.title, text.choices[0].label) == ("APPROVE deploy?", "APPROVE ONCE")


def test_a_form_for_a_question_takes_a_choice_or_a_text() -> None:
    assert list(question_form(question(text="Which?", options=("red",)))["properties"]) == ["choice", "answer"]
    assert question_form(question(text="Why?"))["required"] == ["answer"]
    assert read_question_form({"choice": "red", "answer": "green"}) == "green"
    assert read_question_form({"choice": "red", "answer": " "}) == "red"
    assert read_question_form({"answer": 3}) is None
