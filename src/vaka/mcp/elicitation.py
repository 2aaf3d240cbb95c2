"""Decisions of a person as forms of a client: what is asked, and what an answer decides."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from vaka.core.ports.store import PendingDecision
from vaka.core.types.control import ApprovalRequested, QuestionAsked
from vaka.core.types.decision_text import APPROVAL_FORM, question_form, read_question_form
from vaka.core.types.errors import NotFound
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON

MAX_MESSAGE_LENGTH = 20_000
"""Characters of a form. A longer call is not asked about here: a person must see all of what is approved."""


class DecisionPort(Protocol):
    """The open decisions of sessions; a ``Runtime``."""

    async def decisions(self, session: str | None = None) -> Sequence[PendingDecision]: ...

    async def resolve(
        self, approval: str, decision: Literal["approve", "reject"], *, message: str = "", by: str = ""
    ) -> Event: ...

    async def answer(self, question: str, answer: JSON, *, by: str = "") -> Event: ...


class DecisionForm(msgspec.Struct, frozen=True):
    """A form: its text, and the JSON Schema of its fields."""

    message: str
    schema: dict[str, Any]


class GivenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of a person."""

    id: str
    decision: Literal["approve", "reject"] | None = None
    """``None`` for the answer to a question."""
    text: JSON = None

    async def write(self, port: DecisionPort, by: str) -> None:
        """Write the decision, unless there is another one already, or it has expired."""
        try:
            if self.decision is None:
                await port.answer(self.id, self.text, by=by)
            else:
                await port.resolve(self.id, self.decision, message=self.text or "", by=by)
        except NotFound:
            pass


class DecisionForms(msgspec.Struct, frozen=True, kw_only=True):
    """How decisions are asked."""

    describe: Callable[[ApprovalRequested], str]
    """Returns a call that needs an approval, whole, for the person."""
    hint: Callable[[PendingDecision], str]
    """Returns a decision in one line with the command that takes it."""
    enabled: bool = True

    def form_of(self, row: PendingDecision) -> DecisionForm | None:
        """Return the form of an open decision, ``None`` if it cannot be asked by a form."""
        body = row.event.data
        if isinstance(body, ApprovalRequested):
            form = DecisionForm(self.describe(body), APPROVAL_FORM)
        else:
            assert isinstance(body, QuestionAsked)  # noqa: S101  # a decision is an approval or a question
            form = DecisionForm(body.text, question_form(body))
        return form if self.enabled and len(form.message) <= MAX_MESSAGE_LENGTH else None


def parse_answer(row: PendingDecision, action: str, content: Mapping[str, Any] | None) -> GivenAnswer | None:
    """Return what a submitted or declined form decides, ``None`` if its fields decide nothing."""
    fields = content or {}
    is_approval = isinstance(row.event.data, ApprovalRequested)
    if action == "decline":
        return GivenAnswer(id=row.id, decision="reject" if is_approval else None)
    if is_approval:
        decision, reason = fields.get("decision"), fields.get("reason")
        if decision not in ("approve", "reject"):
            return None
        text = reason.strip() if isinstance(reason, str) and decision == "reject" else ""
        return GivenAnswer(id=row.id, decision=decision, text=text)
    answer = read_question_form(fields)
    return None if answer is None else GivenAnswer(id=row.id, text=answer)
