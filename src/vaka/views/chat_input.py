"""What a client's request brings to a session, whatever the protocol it is written in. All wire decoders return it."""

import re
from typing import Any, TypeAlias

import msgspec

from vaka.core.types.control import ApprovalResolved, InputAdded, QuestionAnswered
from vaka.core.types.ids import DecisionId
from vaka.core.types.message import Content, Message, Text, ToolResult
from vaka.core.types.tool import ToolChoice, ToolSpec

Decision: TypeAlias = ApprovalResolved | QuestionAnswered


class ChatInput(msgspec.Struct, frozen=True, kw_only=True):
    """A request. The decoder of a protocol adds what only its encoder needs."""

    session: str = ""
    """The session, if the protocol names it; else ``model`` or ``history`` do."""
    model: str = ""
    """The agent, or ``agent:session``."""
    inputs: tuple[InputAdded, ...] = ()
    """What the user says after the last message of the assistant, oldest first. The key of each is the id of its
    message, so a repeated one is one; it is empty in protocols whose messages have no ids."""
    results: tuple[ToolResult, ...] = ()
    """The results of calls that the client was asked to run, by the ids of the log; those that do not wait for the
    client are ignored."""
    decisions: tuple[Decision, ...] = ()
    """Decisions about approvals, and answers. An approval without an id means the only open approval."""
    history: tuple[Message, ...] = ()
    """The messages up to the last one of the assistant, in protocols whose requests have no session."""
    instructions: str = ""
    """The texts of the system and of the developer."""
    tools: tuple[ToolSpec, ...] = ()
    """Tools whose calls the client runs."""
    tool_choice: ToolChoice = "auto"
    options: dict[str, Any] = {}
    """Model options, such as ``temperature``; ``output`` is the schema of the answer."""
    key: str = ""
    """The idempotency key of the client."""
    is_separate: bool = False
    """Whether the request gets a session of its own, although one has its conversation."""
    has_spoken_replies: bool = False
    """Whether a text such as ``approve`` decides an approval, because the protocol has no other way."""
    stops_on_disconnect: bool = False
    """Whether the turn is stopped when the client leaves."""

    @property
    def content(self) -> Content:
        """All that the user says."""
        return tuple(part for added in self.inputs for part in added.content)

    @property
    def has_content(self) -> bool:
        """Whether the user says something."""
        return any(not isinstance(part, Text) or part.text.strip() for part in self.content)

    @property
    def has_only_results(self) -> bool:
        """Whether the request brings nothing new but results of calls."""
        return bool(self.results) and not self.has_content and not self.decisions

    @property
    def approvals(self) -> tuple[ApprovalResolved, ...]:
        """The decisions about approvals, a spoken one included."""
        given = tuple(decision for decision in self.decisions if isinstance(decision, ApprovalResolved))
        if given or not self.has_spoken_replies:
            return given
        last = next((part.text for part in reversed(self.content) if isinstance(part, Text)), "")
        spoken = parse_reply(last)
        return () if spoken is None else (spoken,)


def inputs_of(content: Content) -> tuple[InputAdded, ...]:
    """Return what the user says in a protocol whose messages have no ids."""
    return (InputAdded(key="", content=content),) if content else ()


_REPLY = re.compile(r"(approve|reject)(?:\s+([\w.:-]*\w))?(?:\s*:\s*(.*))?\s*", re.IGNORECASE | re.DOTALL)


def parse_reply(text: str) -> ApprovalResolved | None:
    """Return the decision of ``approve``, ``approve ID``, ``reject``, ``reject ID`` or ``reject ID: MESSAGE``.

    Any other text is no decision: an approval is never guessed.
    """
    found = _REPLY.fullmatch(text.strip())
    if found is None:
        return None
    decision, approval, message = found.groups(default="")
    return ApprovalResolved(
        approval=DecisionId(approval),
        decision="approve" if decision.lower() == "approve" else "reject",
        message=message.strip(),
    )
