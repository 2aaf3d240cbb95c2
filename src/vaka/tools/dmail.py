"""D-Mail: a message an agent sends to itself at an earlier checkpoint of its turn."""

import msgspec

from vaka.core.loop.call_context import CallContext
from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.tool import ToolContext
from vaka.core.types.context import CheckpointSaved
from vaka.core.types.control import Onward, SessionReverted, StateChanged
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import CallId
from vaka.core.types.message import Text, replace_surrogates
from vaka.core.types.monitor import Logged

STATE_KEY = "mail.sent"


class DMail(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A D-Mail that was sent and not delivered yet; stored in the session state."""

    call: CallId
    checkpoint: int
    message: str


def checkpoint_label(number: int) -> str:
    """Return the name a checkpoint has in the log."""
    return f"checkpoint-{number}"


class DMailDelivery(Middleware):
    """Delivers D-Mails of the root agent between steps, and saves a checkpoint before each step."""

    async def before_step(self, turn: Turn) -> tuple[CheckpointSaved, ...]:
        """Rewind to the checkpoint of a sent mail, if there is one; return the checkpoint of the next step."""
        if turn.path:
            return ()
        await deliver_dmail(turn)
        return (_checkpoint_event(turn.state.marked),)


DELIVERY = DMailDelivery()


def send_dmail(context: ToolContext, message: str, checkpoint: int) -> str:
    """Store a D-Mail for delivery after this step and return the text of the tool's result.

    Raises ``InvalidInput`` when it cannot be delivered.
    """
    if not isinstance(context, CallContext) or context.path:
        raise InvalidInput("only the agent that answers people can go back, not an agent that works for another agent")
    turn, known = context.owner_turn, _parse_dmail(context.state.get(STATE_KEY))
    if known is not None and known.call != context.call:
        raise InvalidInput(f"a mail to checkpoint {known.checkpoint} is on its way already; one can be sent in a step")
    max_rewinds, rewinds = turn.limits.max_rewinds, turn.state.turn.rewinds if turn.state.turn else 0
    if rewinds >= max_rewinds:
        raise InvalidInput(f"this turn has gone back {rewinds} times, and may {max_rewinds} times; go on from here")
    if checkpoint_label(checkpoint) not in turn.state.marks:
        available = ", ".join(name.rpartition("-")[2] for name in turn.state.marks) or "none"
        raise InvalidInput(
            f"there is no checkpoint {checkpoint} to go back to; this turn has {available}. Earlier turns stay: what "
            "was asked for in this one would be lost"
        )
    context.state.set(STATE_KEY, msgspec.to_builtins(DMail(context.call, checkpoint, replace_surrogates(message))))
    return (
        f"It goes off when the calls of this step have their results: the conversation then goes on from checkpoint "
        f"{checkpoint}, unless a person refuses one of them. What was done stays done."
    )


async def deliver_dmail(turn: Turn) -> None:
    """Rewind the conversation to the checkpoint of a sent D-Mail. Runs between steps, when no call is open."""
    mail = _parse_dmail(turn.get_state(STATE_KEY))
    if mail is None:
        return
    if turn.log.deferred:
        await turn.log.append(turn.scope)  # the revert must follow the events of this step in the log
    state = turn.state
    assert state.turn is not None  # noqa: S101  # the turn is running
    at = state.marks.get(checkpoint_label(mail.checkpoint))
    if at is None:
        dropped = f"the mail to checkpoint {mail.checkpoint} was dropped: the turn it was sent in has ended"
        await turn.log.append(turn.scope, StateChanged(key=STATE_KEY), Logged(level="info", message=dropped))
        return
    agent_progress = turn.agent_progress
    onward = Onward(
        turn=turn.id,
        step=agent_progress.step,
        rewinds=state.turn.rewinds + 1,
        usage=agent_progress.usage,
        spent=state.turn.usage,
        total=state.usage,
        models=state.models,
        tools=agent_progress.tools,
        grants=tuple(state.grants),
        children=state.turn.children,
    )
    reverted = SessionReverted(
        to=at - 1, calls=state.calls, reason=f"a mail to checkpoint {mail.checkpoint}", onward=onward
    )
    await turn.log.revert(turn.scope, reverted, _checkpoint_event(mail.checkpoint, mail.message))


def _checkpoint_event(number: int, mail: str = "") -> CheckpointSaved:
    content = [Text(text=f"<system>CHECKPOINT {number}</system>")]
    if mail:
        content.append(Text(text=_ARRIVED_TEXT.format(mail.replace("</system", "<\u200b/system"))))
    return CheckpointSaved(label=checkpoint_label(number), number=number, told=tuple(content))


_ARRIVED_TEXT = (
    "<system>You wrote this to yourself further on in this turn; the conversation was then taken back to this place. "
    "What you did there stays done: files, and all else outside of the conversation, are as you left them.\n\n{}"
    "</system>"
)


def _parse_dmail(value: object) -> DMail | None:
    try:
        return msgspec.convert(value, DMail) if value is not None else None
    except msgspec.ValidationError:
        return None  # another tool has written a value under this key
