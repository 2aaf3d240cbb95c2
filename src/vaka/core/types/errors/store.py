"""What can go wrong with the log and where it is kept."""

from vaka.core.types.errors.base import VakaError


class StoreError(VakaError):
    """The store could not do what was asked."""

    code = "store"


class ConflictError(StoreError):
    """Another writer has taken the session over; this one must stop."""

    code = "conflict"
    exit_code = 75


class HeadMoved(StoreError):
    """Someone offered an event first: read it, fold it, append again."""

    code = "head_moved"
    exit_code = 75


class Busy(StoreError):
    """The session has a live writer, or the store is locked; try again."""

    code = "busy"
    exit_code = 75


class Unavailable(StoreError):
    """The store cannot be reached now; whether the last write happened is unknown."""

    code = "unavailable"
    exit_code = 75


class Corrupt(StoreError):
    """Stored bytes are not what was written."""

    code = "corrupt"


class TooNew(StoreError):
    """The log holds events that only a newer vaka may act on."""

    code = "too_new"
    exit_code = 3


class LogError(VakaError):
    """An append that would break a rule of the log; nothing was written."""

    code = "log"
