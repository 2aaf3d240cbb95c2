"""The value of one point of one middleware: awaited within its time, and checked."""

from collections.abc import Awaitable
from types import NoneType
from typing import NamedTuple, TypeVar

from vaka.core.session.stop import StopSignal, TimeExceeded, await_bounded
from vaka.core.types.errors import MIDDLEWARE_NOTE, MiddlewareError

_T = TypeVar("_T")


class PointCall(NamedTuple):
    """A call of a middleware at a point."""

    middleware: str
    point: str
    timeout: float | None
    """Seconds."""
    kinds: tuple[type, ...]
    """The types that its value may have."""


async def await_value(call: PointCall, work: Awaitable[_T], stop: StopSignal | None) -> _T:
    """Return the value of a middleware at a point; its errors get a note with the name of the middleware.

    Raises ``MiddlewareError`` for a value of another type, after the timeout, and for work that is not awaitable.
    """
    name, point = call.middleware, call.point
    if not hasattr(work, "__await__"):
        raise MiddlewareError(f"{point} of middleware {name!r} must be an async function")
    try:
        value = await await_bounded(work, call.timeout, stop)
    except TimeExceeded as error:
        raise MiddlewareError(f"middleware {name!r} timed out after {call.timeout} s") from error
    except Exception as error:
        error.add_note(f"{MIDDLEWARE_NOTE} {name!r}")
        raise
    if not isinstance(value, call.kinds):
        expected = " or ".join("None" if kind is NoneType else kind.__name__ for kind in call.kinds)
        hint = "; end it with a return statement" if value is None else ""
        raise MiddlewareError(f"{point} of middleware {name!r} returned {repr(value)[:200]}, expected {expected}{hint}")
    return value
