"""Map the error body, status or event of any provider to a ModelError. Pure."""

import math
import re
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

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
from vaka.models.compatibility import DECODE_ERRORS, as_list, as_object
from vaka.models.transport.sse import BOM, describe_body, redact_secrets

PAYMENT_REQUIRED = 402
RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})
"""Statuses below 500 after which the same request may succeed."""
MAX_RETRY_AFTER = 24 * 3600.0
MAX_MESSAGE = 1000

_MESSAGE_FIELDS = ("message", "msg", "detail", "error_msg")
_STATUS_HINTS = {
    404: "check the name of the model, and the base URL if you set one",
    405: "check the base URL",
    413: "send less: attach less, or compact the session",
}
_BILLING_CODES = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "insufficient_balance")
_BILLING_MESSAGE = re.compile(
    r"credit balance is too low|insufficient (?:account )?(?:balance|credits?|funds)", re.IGNORECASE
)
"""Some providers report it with status 400 and no code of its own."""
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
_RATE_LIMIT_CODES = ("rate_limit", "resource_exhausted", "too_many_requests")
_INVALID_KEY_CODES = ("api_key_invalid",)
"""Google reports it with status 400, as any invalid request."""
_AUTHENTICATION_CODES = (
    "authentication_error",
    "invalid_api_key",
    "permission_error",
    "unauthenticated",
    "permission_denied",
)


class ErrorReport(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's description of an error."""

    message: str = ""
    kinds: tuple[str, ...] = ()
    """Types, codes and statuses, in lower case."""
    status: int | None = None
    retry_after: float | None = None


def error_from_response(
    status: int, headers: Mapping[str, str], body: bytes, now: Callable[[], float] = time.time
) -> ModelError:
    """Return the error for an answer with a status other than 200."""
    report = parse_error_body(body)
    after = parse_retry_after(headers, now)
    return to_model_error(
        msgspec.structs.replace(
            report,
            status=status,
            retry_after=report.retry_after if after is None else after,
            message=report.message or f"expected an answer, got {describe_body(body)}",
        )
    )


def error_from_event(body: Any) -> ModelError:
    """Return the error for an error event in a stream."""
    return to_model_error(parse_error(body))


def to_model_error(report: ErrorReport) -> ModelError:
    """Return the ``ModelError`` for a provider's error, with its message and a hint."""
    status = report.status
    message = _describe_report(report)
    after = report.retry_after

    def is_error(*codes: str) -> bool:  # a status, if there is one, has precedence over codes
        return status is None and _has_kind(report, codes)

    if status == PAYMENT_REQUIRED or _has_kind(report, _BILLING_CODES) or _BILLING_MESSAGE.search(report.message):
        return ModelRefused(f"{message} (the account has no credit left: add some, or use another key)", status=status)
    if status in {401, 403} or is_error(*_AUTHENTICATION_CODES) or _has_kind(report, _INVALID_KEY_CODES):
        return AuthenticationFailed(f"authentication failed: {message} (check the API key)", status=status)
    if _CONTEXT_TOO_LONG.search(" ".join((report.message, *report.kinds))) and status != 429 and (status or 400) < 500:
        return ContextTooLong(f"{message} (compact the session, or use a model with a larger window)", status=status)
    if status == 429 or is_error(*_RATE_LIMIT_CODES):
        return RateLimited(message + _retry_hint(after), retry_after=after, status=status)
    if status in RETRYABLE_STATUSES or (status or 0) >= 500 or is_error(*_UNAVAILABLE_CODES):
        return ModelUnavailable(message + _retry_hint(after), retry_after=after, status=status)
    if status is not None and 300 <= status < 400:
        return ModelRefused(f"{message} (redirects are not followed: a key must not go elsewhere)", status=status)
    if status is None and not report.kinds:
        return ModelUnavailable(message)
    hint = _STATUS_HINTS.get(status or 0)
    return BadRequest(f"{message} ({hint})" if hint else message, status=status)


def parse_error_body(body: bytes) -> ErrorReport:
    """Return the report in an error body; an empty one if it is not JSON."""
    try:
        return parse_error(msgspec.json.decode(body.removeprefix(BOM)))
    except DECODE_ERRORS:
        return ErrorReport()


def parse_error(value: Any) -> ErrorReport:
    """Find the message, the kinds and the delay in an error of any provider."""
    for item in as_list(value):
        return parse_error(item)
    if isinstance(value, str):
        return ErrorReport(message=_clean_message(value))
    fields = as_object(value)
    inner = next((fields[name] for name in ("error", "errors", "detail") if fields.get(name)), None)
    if inner is not None:
        report = parse_error(inner)
        if report.message or report.kinds:
            return report
    return _parse_error_object(fields)


def parse_retry_after(headers: Mapping[str, str], now: Callable[[], float] = time.time) -> float | None:
    """Return the delay of the headers in seconds, ``None`` if it is absent or invalid."""
    milliseconds = _parse_number(headers.get("retry-after-ms", "").strip())
    if milliseconds is not None:
        return _clamp_seconds(milliseconds / 1000)
    text = headers.get("retry-after", "").strip()
    seconds = _parse_number(text)
    if seconds is not None:
        return _clamp_seconds(seconds)
    try:
        return _clamp_seconds(parsedate_to_datetime(text).timestamp() - now())
    except (ValueError, TypeError, OverflowError):
        return None


def _parse_error_object(fields: dict[str, Any]) -> ErrorReport:
    texts = {name: value for name, value in fields.items() if isinstance(value, str) and value}
    details = [as_object(detail) for detail in as_list(fields.get("details"))]
    reasons = [detail.get("reason") for detail in details]
    kinds = [texts.get(name) for name in ("type", "code", "status")] + reasons
    code = fields.get("code")
    return ErrorReport(
        message=_clean_message(next((texts[name] for name in _MESSAGE_FIELDS if name in texts), "")),
        kinds=tuple(kind.lower() for kind in kinds if isinstance(kind, str) and kind),
        retry_after=_parse_retry_delay(details),
        status=code if isinstance(code, int) and 400 <= code < 600 else None,
    )


def _parse_retry_delay(details: list[dict[str, Any]]) -> float | None:
    """Return Google's delay, which is in the body as ``"retryDelay": "34s"``."""
    delays = (detail.get("retryDelay") for detail in details)
    delay = next((delay for delay in delays if isinstance(delay, str) and delay.endswith("s")), "")
    seconds = _parse_number(delay[:-1])
    return None if seconds is None else _clamp_seconds(seconds)


def _describe_report(report: ErrorReport) -> str:
    message = report.message or "the provider gave no reason"
    kind = report.kinds[0] if report.kinds else ""
    parts = [f"HTTP {report.status}"] if report.status else []
    parts += [kind] if kind not in message else []
    return f"{message} ({', '.join(parts)})" if parts else message


def _retry_hint(seconds: float | None) -> str:
    if seconds is None or seconds < 1:
        return ""
    whole = math.ceil(seconds)
    return f" (try again in {whole} s)" if whole < 600 else f" (try again in {-(-whole // 60)} minutes)"


def _has_kind(report: ErrorReport, codes: tuple[str, ...]) -> bool:
    return any(code in kind for kind in report.kinds for code in codes)


def _clean_message(text: str) -> str:
    text = " ".join(text.split())
    return redact_secrets(text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}…")


def _parse_number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", text) else None


def _clamp_seconds(seconds: float) -> float:
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)
