"""The check of an answer against the output type of its agent; an answer that does not fit is asked for again."""

from collections.abc import Callable
from typing import TypeAlias

from vaka.core.loop.blobs import PREVIEW_LENGTH, restore_content
from vaka.core.ports.log import Log
from vaka.core.types.errors import InvalidOutput
from vaka.core.types.ids import EventScope
from vaka.core.types.message import text_of
from vaka.core.types.progress import MessageCompleted, OutputRejected

OutputCheck: TypeAlias = Callable[[str], str]
"""Returns what is wrong with an answer, ``""`` for one that fits."""

_FEEDBACK = "{}\nAnswer again: with JSON that matches the schema, and nothing else."


async def restore_answer(log: Log, scope: EventScope, text: str) -> str:
    """Return the whole text of an agent's last answer; ``text`` is its beginning if it is too large for an event."""
    if len(text) < PREVIEW_LENGTH:
        return text
    own = [body for place, body in log.deferred if place.path == scope.path]
    for body in (*reversed(own), *(event.data for event in reversed(log.window.events) if event.path == scope.path)):
        if isinstance(body, MessageCompleted) and text_of(body.content) == text:
            return text_of(await restore_content(log.store.blobs, body.content))
    return text


async def find_errors(log: Log, scope: EventScope, check: OutputCheck, text: str) -> str:
    """Return what is wrong with an agent's last answer, ``""`` if it fits."""
    return check(await restore_answer(log, scope, text))


async def ask_again(log: Log, scope: EventScope, check: OutputCheck, text: str, retries: int) -> bool:
    """Return whether the model has to answer again, and defer the event that says so.

    Raises ``InvalidOutput`` when an answer does not fit and was asked for again ``retries`` times.
    """
    errors = await find_errors(log, scope, check, text)
    if not errors:
        return False
    number = log.state.agent_progress(scope.path).rejected + 1
    if number > retries:
        again = f" (asked again {retries} times)" if retries else ""
        raise InvalidOutput(f"{errors}{again}")
    log.defer(scope, OutputRejected(number=number, feedback=_FEEDBACK.format(f"{errors[:1].upper()}{errors[1:]}.")))
    return True
