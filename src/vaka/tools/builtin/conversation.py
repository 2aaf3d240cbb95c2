"""Tools about the conversation: AskUserQuestion lets a person decide, DMail rewinds the turn to a checkpoint."""

from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import JSON
from vaka.core.types.message import Text, ToolResult
from vaka.core.types.traits import ToolTraits
from vaka.tools.builtin.builtin_tool import builtin_tool, text_result
from vaka.tools.dmail import send_dmail
from vaka.tools.schema.json_types import is_array

_NO_ANSWER = "the question was not answered; decide yourself what is most sensible, say what you assumed, and go on"


_MAX_NUMBER_LABEL = 1_000_000_000
"""An integer answer below this may be the text of a label."""


class Option(TypedDict):
    """A choice."""

    label: Annotated[str, "One to five words.", Meta(min_length=1, max_length=200)]
    description: NotRequired[Annotated[str, Meta(max_length=2_000)]]


class Question(TypedDict):
    """A question."""

    question: Annotated[str, Meta(min_length=1, max_length=2_000)]
    header: NotRequired[Annotated[str, Meta(max_length=12)]]
    options: Annotated[list[Option], Meta(min_length=2, max_length=4)]
    multiSelect: NotRequired[bool]


@builtin_tool("AskUserQuestion", effect="resume", timeout=None)
async def ask_user_question(
    context: ToolContext,
    questions: Annotated[list[Question], Meta(min_length=1, max_length=4)],
    answers: dict[str, Any] | None = None,
) -> ToolResult:
    """Ask a person."""
    _check_questions(questions)
    replies: dict[str, JSON] = {}
    for question in questions:
        labels = [option["label"] for option in question["options"]]
        answer = await context.ask(_format_question(question), options=labels, expires_in=context.world.patience)
        if answer is None:
            return ToolResult(
                call=context.call,
                content=(Text(text=_NO_ANSWER),),
                failed=True,
                reason="error",
                value={"answers": replies, "unanswered": [other["question"] for other in questions[len(replies) :]]},
            )
        several = question.get("multiSelect", False)
        replies[question["question"]] = _match_labels(answer, labels) if several else _match_label(answer, labels)
    texts = {asked: ", ".join(map(str, reply)) if is_array(reply) else reply for asked, reply in replies.items()}
    text = "\n".join(f"{asked}\n  {reply}" for asked, reply in texts.items())
    return text_result(context, text, {"answers": replies})


def _check_questions(questions: list[Question]) -> None:
    texts = [question["question"] for question in questions]
    if len(set(texts)) < len(texts):
        raise InvalidInput("two questions are the same; ask each one once")
    for question in questions:
        labels = [option["label"] for option in question["options"]]
        if len(set(labels)) < len(labels):
            raise InvalidInput(f"two options of {question['question']!r} are the same")


def _format_question(question: Question) -> str:
    """Return a question with the description of each option and a note on how to answer."""
    header = question.get("header", "").strip()
    lines = [f"{header}: {question['question']}" if header else question["question"]]
    lines += [
        f"  {option['label']}: {description}"
        for option in question["options"]
        if (description := option.get("description", "").strip())
    ]
    several = "one or more, separated by commas, " if question.get("multiSelect") else "one "
    return "\n".join([*lines, f"(choose {several}or answer in your own words)"])


def _match_label(answer: JSON, labels: list[str]) -> JSON:
    """Return the label an answer means, by its text or its number, or else the answer itself."""
    if is_array(answer) and len(answer) == 1:
        return _match_label(answer[0], labels)
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < _MAX_NUMBER_LABEL:
        label = _match_label(str(answer), labels)  # a number typed by a person may arrive as JSON
        return label if label in labels else answer
    if not isinstance(answer, str):
        return answer
    text = answer.strip()
    for label in labels:  # before numbers: a label may be a number
        if text in (label, label.strip()):
            return label
    if text.isdecimal() and len(text) == 1 and 0 < int(text) <= len(labels):
        return labels[int(text) - 1]
    return next((label for label in labels if label.casefold() == text.casefold()), text)


def _match_labels(answer: JSON, labels: list[str]) -> list[JSON]:
    """Return all labels an answer means; other text is one answer."""
    if is_array(answer):
        return [_match_label(item, labels) for item in answer]
    whole = _match_label(answer, labels)
    if whole in labels or not isinstance(answer, str):
        return [whole]
    parts = [_match_label(part, labels) for part in answer.split(",") if part.strip()]
    return parts if parts and all(part in labels for part in parts) else [whole]


MAX_MESSAGE_LENGTH = 8_000


@builtin_tool("DMail", effect="idempotent", traits=ToolTraits(session=True))
async def d_mail(
    context: ToolContext,
    message: Annotated[
        str,
        "What you should know there: what you found out, what you did, what to do now.",
        Meta(min_length=1, max_length=MAX_MESSAGE_LENGTH),
    ],
    checkpoint_id: Annotated[int, "The number of a checkpoint of this turn.", Meta(ge=0)],
) -> str:
    """Go back to an earlier place of this turn, with a message to oneself."""
    return send_dmail(context, message, checkpoint_id)
