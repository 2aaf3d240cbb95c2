"""The one mapping of a turn's failure to an HTTP status, a message and a delay, which every protocol uses."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from vaka.core.types.progress import TurnFailed

STATUS_OF_CODES: Mapping[str, int] = {
    "invalid_input": 400,
    "not_found": 404,
    "exists": 409,
    "erased": 410,
    "config": 500,
    "busy": 409,
    "conflict": 409,
    "head_moved": 409,
    "unavailable": 503,
    "closed": 503,
    "suspended": 409,
    "rejected": 409,
    "interrupted": 409,
    "cancelled": 409,
    "rate_limited": 429,
    "model_unavailable": 503,
    "stream_cut": 502,
    "model": 502,
    "model_refused": 502,
    "bad_request": 400,
    "authentication": 401,
    "context_too_long": 400,
    "invalid_output": 502,
    "truncated": 502,
    "file_missing": 404,
    "file_refused": 403,
}
"""The HTTP status of each error code that has one; the others are 500."""

_PROVIDER_CODES = frozenset(
    {"rate_limited", "model_unavailable", "model_refused", "bad_request", "authentication", "context_too_long"}
)
"""The codes of errors whose status the provider has sent."""
_BAD_GATEWAY = frozenset({500, 501, 502})


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a turn has no answer."""

    code: str
    message: str
    status: int = 500
    """The HTTP status for the caller."""
    retry_after: float = 0.0
    """The number of seconds after which the caller may try again; 0 if it is not known."""

    @property
    def details(self) -> dict[str, Any]:
        """The fields for a protocol whose errors have data: code, status and, if it is known, the delay."""
        delay = {"retryAfter": self.retry_after} if self.retry_after else {}
        return {"code": self.code, "status": self.status, **delay}

    @property
    def retry_headers(self) -> dict[str, str]:
        """The headers that say when to try again; clients read the header with milliseconds first."""
        if not self.retry_after:
            return {}
        milliseconds = math.ceil(self.retry_after * 1000)
        return {"Retry-After": str(math.ceil(self.retry_after)), "retry-after-ms": str(milliseconds)}


def status_of_code(code: str, provider_status: int = 0) -> int:
    """Return the HTTP status of an error.

    A provider's 4xx stays the same 4xx. Its 500 is a 502 here, because this server has not failed; an overloaded
    provider (503, 529) is a 503, and its 504 stays a 504.
    """
    if code not in _PROVIDER_CODES or not 400 <= provider_status < 600:
        return STATUS_OF_CODES.get(code, 500)
    if provider_status < 500 or provider_status == 504:
        return provider_status
    return 502 if provider_status in _BAD_GATEWAY else 503


def make_failure(code: str, message: str, provider_status: int = 0, retry_after: float = 0.0) -> Failure:
    """Return a failure by its error code, and by what the provider of the model has answered."""
    if code == "authentication":  # the caller's own key is valid: the request has reached a model
        message = f"the model's provider refused the key of this server, not yours: {message}"
    status = status_of_code(code, provider_status)
    return Failure(code=code, message=message or code, status=status, retry_after=retry_after)


def failure_of(body: TurnFailed) -> Failure:
    """Return the failure of a turn."""
    return make_failure(body.code, body.message, body.status, body.retry_after)
