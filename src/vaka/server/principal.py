"""``Principal``: the caller of a request, the tenant it belongs to and what it may do."""

import msgspec

from vaka.core.ports.store import SessionInfo

SCOPES = ("runs:read", "runs:write", "approvals:write", "tools:execute", "admin", "debug")
"""Every scope. ``admin`` includes the others."""


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a request."""

    id: str
    """The person or program: the owner of an API key, or ``sub`` of a JWT. Sessions it creates get it as owner."""
    namespace: str = ""
    """The tenant: the namespace of the store that the caller sees."""
    scopes: frozenset[str] = frozenset()
    key: str = ""
    """The credential that rate limits count, such as the id of an API key."""
    own_sessions_only: bool = False
    """Whether sessions of other owners in the namespace do not exist for the caller."""
    requests_per_minute: int = 0
    """The rate limit of the credential; 0: the one of the server's settings."""

    expires: float = 0.0
    """Seconds since 1970 at which the credential ends, if it carries that itself, as a JWT does; 0: it does not."""

    def may(self, scope: str) -> bool:
        """Return whether the caller has a scope; ``""`` is no scope and every caller has it."""
        return not scope or scope in self.scopes or "admin" in self.scopes

    def may_see(self, info: SessionInfo) -> bool:
        """Return whether a session of the caller's tenant exists for the caller."""
        return not self.own_sessions_only or info.owner == self.id

    @property
    def visible_owner(self) -> str:
        """The owner whose sessions alone the caller sees; ``""``: those of all owners."""
        return self.id if self.own_sessions_only else ""
