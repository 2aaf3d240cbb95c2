"""The errors of middlewares."""

from collections.abc import Sequence
from types import NoneType

from vaka.core.loop.stop import TimeExceeded
from vaka.core.types.errors import MIDDLEWARE_NOTE, InvalidInput, MiddlewareError
from vaka.core.types.keywords import find_near_names


def error_at_point(error: Exception, middleware: str, point: str, work: object, timeout: float | None) -> Exception:
    """Return the error to raise when ``work`` of a middleware has failed: the same with a note, or a clearer one."""
    if isinstance(error, TimeExceeded):
        return MiddlewareError(f"middleware {middleware!r} timed out after {timeout} s")
    if not hasattr(work, "__await__"):
        return MiddlewareError(f"{point} of middleware {middleware!r} must be an async function")
    error.add_note(f"{MIDDLEWARE_NOTE} {middleware!r}")
    return error


def wrong_value(value: object, middleware: str, point: str, kinds: tuple[type, ...]) -> MiddlewareError:
    """Return the error for a value of another type than a point expects."""
    expected = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
    hint = "; end it with a return statement" if value is None else ""
    return MiddlewareError(
        f"{point} of middleware {middleware!r} returned {repr(value)[:200]}, expected {expected}{hint}"
    )


def unknown_method(middleware: str, name: str, known: Sequence[str]) -> InvalidInput:
    """Return the error for a public coroutine method that no turn would call."""
    near = find_near_names(name, known)
    hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(known)}."
    return InvalidInput(
        f"middleware {middleware!r}: no such point {name!r}; {hint} Begin the name of a helper with an underscore, or "
        "declare it in another base class"
    )
