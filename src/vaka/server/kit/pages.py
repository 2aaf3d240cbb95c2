"""Pages of lists in the HTTP API: their shape, their parameters, and the checks of these."""

from typing import Annotated, Any, Generic, TypeAlias, TypeVar

import msgspec

from vaka.core.ports.store import SessionInfo
from vaka.core.types.ids import Cursor
from vaka.server.kit.problems import Problem

T = TypeVar("T")

MAX_PAGE = 200
PageLimit: TypeAlias = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 1, "maximum": MAX_PAGE})]
LogCursor: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": r"^([0-9]{1,18}(\.[0-9]{1,18})?)?$"})]
"""A position in a log: the ``next_cursor`` of a page, or the id of an event."""


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A page of a list; ``next_cursor`` is the ``cursor`` of the next one."""

    data: list[T]
    next_cursor: str | None = None
    has_more: bool = False


def page_limit(limit: int) -> int:
    """Return the length of a page. Raises a ``Problem`` unless it is 1 to ``MAX_PAGE``."""
    if not 1 <= limit <= MAX_PAGE:
        raise Problem(422, "invalid_query", f"limit {limit} must be 1 to {MAX_PAGE}", errors=[{"field": "limit"}])
    return limit


def page_position(info: SessionInfo, cursor: str) -> int:
    """Return the event at which a page of a log begins, 0 without a cursor. Raises a ``Problem`` for a foreign one."""
    position = Cursor.parse(cursor)
    if position.epoch not in (0, info.epoch) or position.seq > info.head + 1:
        detail = f"cursor {cursor!r} is not of the log of session {info.id!r} as it is now; begin without a cursor"
        raise Problem(410, "cursor_gone", detail)
    return position.seq


def parse_metadata(text: str) -> dict[str, Any]:
    """Return the metadata of a filter, given as a JSON object. Raises a ``Problem`` with status 422."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any]) if text else {}
    except (msgspec.MsgspecError, RecursionError) as error:
        detail = f"metadata must be a JSON object: {error}"
        raise Problem(422, "invalid_query", detail, errors=[{"field": "metadata"}]) from error
