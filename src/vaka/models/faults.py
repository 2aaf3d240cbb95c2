"""What a provider says when it does not answer, as one of our errors. Pure.

Every provider wraps its words differently; a message, a kind and a code are somewhere in all of them. Words come from
outside: they are cut, and what looks like a secret is left out.
"""

import math
import re
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, cast

import msgspec

from vaka.core.types.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextTooLong,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
)
from vaka.models.sse import BOM, hide, looks_like

PAYMENT = 402
AGAIN = frozenset({408, 409, 425, 429})
"""Statuses below 500 after which the same request may succeed."""
LONGEST = 24 * 3600.0
SHOWN = 1000

_HINTS = {
    404: "check the name of the model, and the address if you gave one",
    405: "check the address",
    413: "send less: attach less, or compact the session",
}  # fmt: skip
_OUT_OF_MONEY = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "insufficient_balance")
_NO_CREDIT = re.compile(
    r"credit balance is too low|insufficient (?:account )?(?:balance|credits?|funds)", re.IGNORECASE
)
"""Some say so with status 400, and no word of their own for it."""
_TOO_LONG = re.compile(
    r"context.?length|context.?window|prompt is too long|too many (?:input )?tokens|maximum context"
    r"|input token count.*exceeds|exceed\w* (?:the )?(?:available )?context|input (?:is )?too long"
    r"|reduce the length of the (?:messages|input|prompt)",
    re.IGNORECASE,
)
_OVERLOADED = ("overloaded", "unavailable", "server_error", "api_error", "internal", "timeout", "deadline_exceeded")
_NO_KEY = ("api_key_invalid",)
"""Google says so with status 400, as it says of a request that makes no sense."""
_KEYS = ("authentication_error", "invalid_api_key", "permission_error", "unauthenticated", "permission_denied")


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """An error as a provider put it."""

    message: str = ""
    kinds: tuple[str, ...] = ()
    """Types, codes and statuses, in lower case."""
    status: int | None = None
    retry_after: float | None = None


def of_response(
    status: int, headers: Mapping[str, str], body: bytes, now: Callable[[], float] = time.time
) -> ModelError:
    """Return the error that an answer with a status other than 200 stands for."""
    said = read(body)
    after = retry_after(headers, now)
    return error(
        msgspec.structs.replace(
            said, status=status, retry_after=said.retry_after if after is None else after,
            message=said.message or f"expected an answer, got {looks_like(body)}",
        )
    )  # fmt: skip


def of_event(body: Any) -> ModelError:
    """Return the error that stands in the middle of a stream instead of an answer."""
    return error(said_of(body))


def error(said: Said) -> ModelError:
    """Return the error that fits best what a provider said, with its words and what to do."""
    status, words = said.status, _words(said)
    if status == PAYMENT or _any(said, _OUT_OF_MONEY) or _NO_CREDIT.search(said.message):
        return ModelRefused(f"{words} (the account has no credit left: add some, or use another key)", status=status)
    if status in {401, 403} or (status is None and _any(said, _KEYS)) or _any(said, _NO_KEY):
        return AuthenticationFailed(f"authentication failed: {words} (check the API key)", status=status)
    if _TOO_LONG.search(" ".join((said.message, *said.kinds))) and status != 429 and (status or 400) < 500:
        return ContextTooLong(f"{words} (compact the session, or use a model with a larger window)", status=status)
    if status == 429 or (status is None and _any(said, ("rate_limit", "resource_exhausted", "too_many_requests"))):
        return RateLimited(words + _later(said.retry_after), retry_after=said.retry_after, status=status)
    if status in AGAIN or (status or 0) >= 500 or (status is None and _any(said, _OVERLOADED)):
        return ModelUnavailable(words + _later(said.retry_after), retry_after=said.retry_after, status=status)
    if status is not None and 300 <= status < 400:
        return ModelRefused(f"{words} (redirects are not followed: a key must not go elsewhere)", status=status)
    if status is None and not said.kinds:
        return ModelUnavailable(words)
    hint = _HINTS.get(status or 0)
    return BadRequest(f"{words} ({hint})" if hint else words, status=status)


def read(body: bytes) -> Said:
    """Return what an error body says; nothing when it is not JSON."""
    try:
        return said_of(msgspec.json.decode(body.removeprefix(BOM)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Said()


def said_of(value: Any) -> Said:
    """Find the message, the kinds and the wait in an error of any provider."""
    for item in _items(value):
        return said_of(item)
    if isinstance(value, str):
        return Said(message=_clean(value))
    if not isinstance(value, dict):
        return Said()
    found = cast("dict[str, Any]", value)
    inner = next((found[name] for name in ("error", "errors", "detail") if found.get(name)), None)
    if inner is not None:
        said = said_of(inner)
        if said.message or said.kinds:
            return said
    return _said(found)


def retry_after(headers: Mapping[str, str], now: Callable[[], float] = time.time) -> float | None:
    """Return the seconds that headers ask to wait, ``None`` when they do not say or make no sense."""
    text = headers.get("retry-after-ms", "").strip()
    if _number(text) is not None:
        return _bounded((_number(text) or 0.0) / 1000)
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    seconds = _number(text)
    if seconds is not None:
        return _bounded(seconds)
    try:
        return _bounded(parsedate_to_datetime(text).timestamp() - now())
    except (ValueError, TypeError, OverflowError):
        return None


def _said(found: dict[str, Any]) -> Said:
    message = next((found[name] for name in ("message", "msg", "detail", "error_msg") if _text(found.get(name))), "")
    kinds = [str(found[name]).lower() for name in ("type", "code", "status") if _text(found.get(name))]
    kinds += [reason.lower() for detail in _items(found.get("details")) if _text(reason := _reason(detail))]
    code = found.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else None
    return Said(message=_clean(message), kinds=tuple(kinds), retry_after=_delay(found), status=status)


def _delay(found: dict[str, Any]) -> float | None:
    """Google says how long to wait inside the body, as ``"retryDelay": "34s"``."""
    for detail in _items(found.get("details")):
        delay = cast("dict[str, Any]", detail).get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and delay.endswith("s"):
            seconds = _number(delay[:-1])
            return None if seconds is None else _bounded(seconds)
    return None


def _reason(detail: Any) -> Any:
    return cast("dict[str, Any]", detail).get("reason") if isinstance(detail, dict) else None


def _items(value: Any) -> list[Any]:
    items = cast("list[Any]", value)
    return items if isinstance(value, list) else []


def _words(said: Said) -> str:
    words = said.message or "the provider gave no reason"
    kind = said.kinds[0] if said.kinds else ""
    parts = [part for part in (f"HTTP {said.status}" if said.status else "", kind if kind not in words else "") if part]
    return f"{words} ({', '.join(parts)})" if parts else words


def _later(seconds: float | None) -> str:
    """Return when to ask again, where a provider says so and it is worth telling."""
    if seconds is None or seconds < 1:
        return ""
    whole = math.ceil(seconds)
    return f" (try again in {whole} s)" if whole < 600 else f" (try again in {-(-whole // 60)} minutes)"


def _any(said: Said, kinds: tuple[str, ...]) -> bool:
    return any(kind in mine for mine in said.kinds for kind in kinds)


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _clean(text: str) -> str:
    text = " ".join(text.split())
    return hide(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", text) else None


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), LONGEST)
