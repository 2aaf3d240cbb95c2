"""The question what became of a lost call, and its answer. Pure."""

from typing import Literal

import msgspec

from vaka.core.types.control import QuestionAsked
from vaka.core.types.ids import JSON, DecisionId
from vaka.core.types.state import DecisionRecord, OpenCall

OUTCOMES = ("happened", "did not happen", "leave it")
LOST_TEXT = "The process stopped while this call was running."


def outcome_question(id: DecisionId, open_call: OpenCall) -> QuestionAsked:
    arguments = msgspec.json.encode(open_call.call.arguments).decode()
    return QuestionAsked(
        question=id,
        call=open_call.call.id,
        kind="outcome",
        options=OUTCOMES,
        text=f"{LOST_TEXT} Did {open_call.call.name} {arguments} happen? Answer 'happened', 'did not happen' "
        "to run it as a new call, or 'leave it'. An answer with its result is "
        '{"outcome": "happened", "result": …}.',
    )


def parse_outcome(decision: DecisionRecord) -> tuple[Literal["happened", "repeat", "leave"], JSON]:
    """Parse the answer to an outcome question; an answer in no known form means ``leave``."""
    answer: JSON = decision.answered.answer if decision.answered else None
    if isinstance(answer, str):
        answer = _parse_text(answer)
    fields: dict[str, JSON] = answer if hasattr(answer, "get") else {"outcome": answer}
    outcome = fields.get("outcome")
    if outcome == OUTCOMES[0]:
        return "happened", fields.get("result")
    if outcome == OUTCOMES[1]:
        return "repeat", None
    return "leave", None


def _parse_text(text: str) -> JSON:
    """Return the object that a text contains, else the text: clients of chat protocols answer with text alone."""
    try:
        found: JSON = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text.strip()
    return found if hasattr(found, "get") else text.strip()
