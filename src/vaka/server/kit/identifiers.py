"""The rule for ids and keys that clients choose. Every door applies it before something is stored under the name."""

from typing import Literal, TypeAlias

from vaka.server.kit.problems import Problem

MAX_ID_CHARS = 200
MAX_KEY_CHARS = 300
"""The size of a stored key: an id that a client chose, and what a door adds to it."""
RESERVED_IDS = frozenset({".", "..", "*", "current", "search"})
"""Names that mean something else in an address or a request."""
ID_PATTERN = r"^[^/\u0000-\u001f\u007f]+$"
"""The characters of an id, for descriptions of the API."""

IdKind: TypeAlias = Literal["session id", "key", "Idempotency-Key", "message id"]


def is_valid_id(text: str, max_chars: int = MAX_ID_CHARS) -> bool:
    """Return whether a client may choose this id: it is a segment of an address, and can be stored and printed."""
    return (
        0 < len(text) <= max_chars
        and text.isprintable()
        and text == text.strip()
        and "/" not in text
        and text not in RESERVED_IDS
    )


def check_id(text: str, kind: IdKind = "session id", *, field: str = "id", max_chars: int = MAX_ID_CHARS) -> None:
    """Raise a ``Problem`` for an id or a key that a client may not choose."""
    if is_valid_id(text, max_chars):
        return
    rule = f"1 to {max_chars} printable characters without '/' and without blanks at its ends"
    detail = f"{kind} {text[:80]!r} must have {rule}, and be none of {', '.join(sorted(RESERVED_IDS))}"
    if kind == "Idempotency-Key":
        raise Problem(400, "invalid_key", detail)
    raise Problem(422, "invalid_id", detail, errors=[{"field": field, "message": f"expected {rule}"}])
