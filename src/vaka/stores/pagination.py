"""The opaque cursor of a page of sessions: encode it, decode it and check it."""

import base64
import binascii

import msgspec

from vaka.core.ports.store import SessionInfo, SessionQuery
from vaka.core.types.errors import InvalidInput

_decode_cursor = msgspec.json.Decoder(tuple[str, str]).decode


def cursor_of(info: SessionInfo) -> str:
    """Return the cursor of the page after the one that ends with ``info``."""
    return base64.urlsafe_b64encode(msgspec.json.encode((info.updated, info.id))).decode()


def parse_cursor(query: SessionQuery) -> tuple[str, str] | None:
    """Return ``(updated, id)`` of the session the query continues after; ``InvalidInput`` for a cursor of no page."""
    if query.limit < 1:
        raise InvalidInput(f"limit {query.limit} must be at least 1")
    if not query.after:
        return None
    try:
        return _decode_cursor(base64.b64decode(query.after, altchars=b"-_", validate=True))
    except (binascii.Error, msgspec.MsgspecError, ValueError) as error:
        raise InvalidInput(f"{query.after[:60]!r} is not the cursor of a page") from error
