"""Map the error body, status or event of any provider to a ModelError. Pure."""

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
from vaka.models.transport.sse import BOM, describe_body, redact_secrets

PAYMENT_REQUIRED = 402
RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})
"""Statuses below 500 after which the same request may succeed."""
MAX_RETRY_AFTER = 24 * 3600.0
MAX_MESSAGE = 1000

_STATUS_HINTS = {
    404: "check the name of the model, and the address if you gave one",
    405: "check the address",
    413: "send less: attach less, or compact the session",
}  # fmt: skip
_BILLING_CODES = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "insufficient_balance")
_BILLING_MESSAGE = re.compile(
    r"credit balance is too low|insufficient (?:account )?(?:balance|credits?|funds)", re.IGNORECASE
)
"""Some say so with status 400, and no word of their own for it."""
_CONTEXT_TOO_LONG = re.compile(
    r"context.?length|context.?window|prompt is too long|too many (?:input )?tokens|maximum context"
    r"|input token count.*exceeds|exceed\w* (?:the )?(?:available )?context|input (?:is )?too long"
    r"|reduce the length of the (?:messages|input|prompt)",
    re.IGNORECASE,
)
_UNAVAILABLE_CODES = (
    "overloaded",
    "unavailable",
    "server_error",
    "api_error",
    "internal",
    "timeout",
    "deadline_exceeded",
)
_INVALID_KEY_CODES = ("api_key_invalid",)
"""Google says so with status 400, as it says of a request that makes no sense."""
_AUTHENTICATION_CODES = (
    "authentication_error",
    "invalid_api_key",
    "permission_error",
    "unauthenticated",
    "permission_denied",
)


class ErrorReport(msgspec.Struct, frozen=True, kw_only=True):
    """An error as a provider put it."""

    message: str = ""
    kinds: tuple[str, ...] = ()
    """Types, codes and statuses, in lower case."""
    status: int | None = None
    retry_after: float | None = None


def error_from_response(
    status: int, headers: Mapping[str, str], body: bytes, now: Callable[[], float] = time.time
) -> ModelError:
    """Return the error that an answer with a status other than 200 stands for."""
    said = parse_error_body(body)
    after = parse_retry_after(headers, now)
    return to_model_error(
        msgspec.structs.replace(
            said, status=status, retry_after=said.retry_after if after is None else after,
            message=said.message or f"expected an answer, got {describe_body(body)}",
        )
    )  # fmt: skip


def error_from_event(body: Any) -> ModelError:
    """Return the error that stands in the middle of a stream instead of an answer."""
    return to_model_error(parse_error(body))


def to_model_error(report: ErrorReport) -> ModelError:
    """Return the error that fits best what a provider said, with its words and what to do."""
    status, words = report.status, _describe_report(report)
    if status == PAYMENT_REQUIRED or _has_kind(report, _BILLING_CODES) or _BILLING_MESSAGE.search(report.message):
        return ModelRefused(f"{words} (the account has no credit left: add some, or use another key)", status=status)
    if (
        status in {401, 403}
        or (status is None and _has_kind(report, _AUTHENTICATION_CODES))
        or _has_kind(report, _INVALID_KEY_CODES)
    ):
        return AuthenticationFailed(f"authentication failed: {words} (check the API key)", status=status)
    if _CONTEXT_TOO_LONG.search(" ".join((report.message, *report.kinds))) and status != 429 and (status or 400) < 500:
        return ContextTooLong(f"{words} (compact the session, or use a model with a larger window)", status=status)
    if status == 429 or (
        status is None and _has_kind(report, ("rate_limit", "resource_exhausted", "too_many_requests"))
    ):
        return RateLimited(words + _retry_hint(report.retry_after), retry_after=report.retry_after, status=status)
    if (
        status in RETRYABLE_STATUSES
        or (status or 0) >= 500
        or (status is None and _has_kind(report, _UNAVAILABLE_CODES))
    ):
        return ModelUnavailable(words + _retry_hint(report.retry_after), retry_after=report.retry_after, status=status)
    if status is not None and 300 <= status < 400:
        return ModelRefused(f"{words} (redirects are not followed: a key must not go elsewhere)", status=status)
    if status is None and not report.kinds:
        return ModelUnavailable(words)
    hint = _STATUS_HINTS.get(status or 0)
    return BadRequest(f"{words} ({hint})" if hint else words, status=status)


def parse_error_body(body: bytes) -> ErrorReport:
    """Return what an error body says; nothing when it is not JSON."""
    try:
        return parse_error(msgspec.json.decode(body.removeprefix(BOM)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ErrorReport()


def parse_error(value: Any) -> ErrorReport:
    """Find the message, the kinds and the wait in an error of any provider."""
    for item in _as_list(value):
        return parse_error(item)
    if isinstance(value, str):
        return ErrorReport(message=_clean_message(value))
    if not isinstance(value, dict):
        return ErrorReport()
    found = cast("dict[str, Any]", value)
    inner = next((found[name] for name in ("error", "errors", "detail") if found.get(name)), None)
    if inner is not None:
        said = parse_error(inner)
        if said.message or said.kinds:
            return said
    return _parse_error_object(found)


def parse_retry_after(headers: Mapping[str, str], now: Callable[[], float] = time.time) -> float | None:
    """Return the seconds that headers ask to wait, ``None`` when they do not say or make no sense."""
    text = headers.get("retry-after-ms", "").strip()
    if _parse_number(text) is not None:
        return _clamp_seconds((_parse_number(text) or 0.0) / 1000)
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    seconds = _parse_number(text)
    if seconds is not None:
        return _clamp_seconds(seconds)
    try:
        return _clamp_seconds(parsedate_to_datetime(text).timestamp() - now())
    except (ValueError, TypeError, OverflowError):
        return None


def _parse_error_object(found: dict[str, Any]) -> ErrorReport:
    message = next((found[name] for name in ("message", "msg", "detail", "error_msg") if _is_text(found.get(name))), "")
    kinds = [str(found[name]).lower() for name in ("type", "code", "status") if _is_text(found.get(name))]
    kinds += [reason.lower() for detail in _as_list(found.get("details")) if _is_text(reason := _reason_of(detail))]
    code = found.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else None
    return ErrorReport(
        message=_clean_message(message), kinds=tuple(kinds), retry_after=_parse_retry_delay(found), status=status
    )


def _parse_retry_delay(found: dict[str, Any]) -> float | None:
    """Google says how long to wait inside the body, as ``"retryDelay": "34s"``."""
    for detail in _as_list(found.get("details")):
        delay = cast("dict[str, Any]", detail).get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and delay.endswith("s"):
            seconds = _parse_number(delay[:-1])
            return None if seconds is None else _clamp_seconds(seconds)
    return None


def _reason_of(detail: Any) -> Any:
    return cast("dict[str, Any]", detail).get("reason") if isinstance(detail, dict) else None


def _as_list(value: Any) -> list[Any]:
    items = cast("list[Any]", value)
    return items if isinstance(value, list) else []


def _describe_report(report: ErrorReport) -> str:
    words = report.message or "the provider gave no reason"
    kind = report.kinds[0] if report.kinds else ""
    parts = [
        part for part in (f"HTTP {report.status}" if report.status else "", kind if kind not in words else "") if part
    ]
    return f"{words} ({', '.join(parts)})" if parts else words


def _retry_hint(seconds: float | None) -> str:
    """Return when to ask again, where a provider says so and it is worth telling."""
    if seconds is None or seconds < 1:
        return ""
    whole = math.ceil(seconds)
    return f" (try again in {whole} s)" if whole < 600 else f" (try again in {-(-whole // 60)} minutes)"


def _has_kind(report: ErrorReport, kinds: tuple[str, ...]) -> bool:
    return any(kind in mine for mine in report.kinds for kind in kinds)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _clean_message(text: str) -> str:
    text = " ".join(text.split())
    return redact_secrets(text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}…")


def _parse_number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", text) else None


def _clamp_seconds(seconds: float) -> float:
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)
