"""Arguments of a call that come in pieces, each with the path of the value it belongs to. Pure."""

import re
from typing import Any

import msgspec

from vaka.core.types.errors import StreamCut

MOST = 10_000
"""Values one list may have."""

_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]'"\s]+) | \[(?P<index>\d{1,9})\] | \['(?P<single>(?:[^'\\]|\\.)*)'\]"""
    r"""| \["(?P<double>(?:[^"\\]|\\.)*)"\]""",
    re.VERBOSE,
)


class Partial(msgspec.Struct, gc=False, rename="camel"):
    """A piece of one value."""

    json_path: str = ""
    string_value: str | None = None
    number_value: float | int | None = None
    bool_value: bool | None = None
    null_value: str | None = None
    will_continue: bool | None = None

    @property
    def value(self) -> Any:
        """What the piece says."""
        said = (self.string_value, self.number_value, self.bool_value)
        return next((value for value in said if value is not None), None)


class Arguments:
    """An object that grows. Raises ``StreamCut`` for pieces that do not fit into one."""

    def __init__(self) -> None:
        self._value: dict[str, Any] = {}
        self._growing: str | None = None  # the path of a text of which more is to come

    def add(self, piece: Partial) -> None:
        """Put a piece in its place; more of the text before goes after it."""
        steps = _steps(piece.json_path)
        place, last = self._place(steps, piece.json_path)
        more = self._growing == piece.json_path
        if more and not isinstance(piece.value, str):
            raise StreamCut(f"the arguments of a call make no sense: {piece.json_path!r} goes on as something else")
        self._growing = piece.json_path if piece.will_continue else None
        place[last] = f"{place[last]}{piece.value}" if more else piece.value

    @property
    def whole(self) -> bool:
        """Whether no text in it is still to go on."""
        return self._growing is None

    def text(self) -> str:
        """Return what came so far as JSON."""
        return msgspec.json.encode(self._value).decode()

    def _place(self, steps: list[str | int], path: str) -> tuple[Any, Any]:
        """Return what holds the value of a path, and where in it, made as far as it was not there."""
        here: Any = self._value
        for step, following in zip(steps, [*steps[1:], None], strict=True):
            _fit(here, step, path)
            if following is None:
                break
            if here[step] is None:
                here[step] = [] if isinstance(following, int) else {}
            here = here[step]
        return here, steps[-1]


def _fit(here: Any, step: str | int, path: str) -> None:
    """Make room for a step: a name in an object, or the next place of a list."""
    members: dict[str, Any] = here
    items: list[Any] = here
    if isinstance(here, dict) and isinstance(step, str):
        members.setdefault(step, None)
        return
    if not isinstance(here, list) or not isinstance(step, int) or step > len(items) or step >= MOST:
        raise StreamCut(f"the arguments of a call make no sense: there is no place for {path!r}")
    if step == len(items):
        items.append(None)


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    at = 1
    while path.startswith("$") and at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            break
        quoted = step["single"] if step["single"] is not None else step["double"]
        name = step["name"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        steps.append(name if name is not None else int(step["index"]))
        at = step.end()
    if not steps or at != len(path):
        raise StreamCut(f"the arguments of a call make no sense: {path!r} is no path")
    return steps
