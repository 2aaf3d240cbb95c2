"""The check of an answer against the output type of its agent; an answer that does not fit is asked for again."""

from collections.abc import Callable
from typing import TypeAlias

from vaka.core.session.log import Log
from vaka.core.types.errors import InvalidOutput
from vaka.core.types.ids import EventScope
from vaka.core.types.progress import OutputRejected

OutputCheck: TypeAlias = Callable[[str], str]
"""Returns what is wrong with an answer, ``""`` for one that fits."""

_FEEDBACK = "{}\nAnswer again: with JSON that matches the schema, and nothing else."


def ask_again(log: Log, scope: EventScope, check: OutputCheck, text: str, retries: int) -> bool:
    """Return whether the model has to answer again, and defer the event that says so.

    Raises ``InvalidOutput`` when an answer does not fit and was asked for again ``retries`` times.
    """
    errors = check(text)
    if not errors:
        return False
    number = log.state.agent_progress(scope.path).rejected + 1
    if number > retries:
        again = f" (asked again {retries} times)" if retries else ""
        raise InvalidOutput(f"{errors}{again}")
    log.defer(scope, OutputRejected(number=number, feedback=_FEEDBACK.format(f"{errors[:1].upper()}{errors[1:]}.")))
    return True
