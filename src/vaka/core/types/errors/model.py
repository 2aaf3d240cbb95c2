"""What can go wrong with a model."""

from vaka.core.types.errors.base import VakaError


class ModelError(VakaError):
    """The model gave no usable answer."""

    code = "model"
    exit_code = 6


class ModelUnavailable(ModelError):
    """The model cannot answer now; the same request may succeed later."""

    code = "model_unavailable"
    exit_code = 75

    def __init__(self, message: str, *, retry_after: float | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.status = status


class RateLimited(ModelUnavailable):
    """Too many requests or tokens for now; ``retry_after`` has the seconds to wait, when the provider said."""

    code = "rate_limited"


class StreamCut(ModelUnavailable):
    """The answer broke off before its end marker, or what came was not an answer; nothing of it counts."""

    code = "stream_cut"


class ModelRefused(ModelError):
    """The model will not answer this request, however often it is sent."""

    code = "model_refused"

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class BadRequest(ModelRefused):
    """The request is wrong, or asks for what the model cannot do; the message has the provider's words."""

    code = "bad_request"


class AuthenticationFailed(ModelRefused):
    """The key is missing or wrong, or may not use this model."""

    code = "authentication"
    exit_code = 4


class ContextTooLong(ModelRefused):
    """The conversation is longer than the model can read: compact it, or choose a model with a larger window."""

    code = "context_too_long"


class Truncated(ModelError):
    """The answer reached its length limit before it was whole: raise ``max_tokens``, or ask for less."""

    code = "truncated"
