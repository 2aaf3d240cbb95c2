"""What can go wrong with a request."""

from vaka.core.types.errors.base import VakaError


class NetworkError(VakaError):
    """A request over the network got no usable answer; ``reason`` says why in one stable word."""

    code = "network"

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class NetworkRefused(NetworkError):
    """The rules of the network forbid the request, or where it was sent on to; nothing was sent there."""

    code = "network_refused"


class NetworkTimeout(NetworkError):
    """Connecting, waiting for more or the whole request took longer than it may."""

    code = "network_timeout"
    exit_code = 75


class NetworkTooLarge(NetworkError):
    """The answer's head, its bytes or what they unpack to are more than was asked for."""

    code = "network_too_large"


class NetworkUnreachable(NetworkError):
    """There is no such name, nobody listens, the certificate is not trusted, or the connection broke."""

    code = "network_unreachable"
    exit_code = 75
