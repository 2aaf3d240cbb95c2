"""``Principal``: the caller of a request, the tenant it belongs to and what it may do."""

import re

import msgspec

from vaka.core.ports.store import SessionInfo
from vaka.core.types.errors import InvalidInput

OPERATOR = "operator"
"""The scope of what concerns the whole server, such as its settings: all tenants share them."""
DEBUG = "debug"
"""The scope to read the settings and the state of the server; ``operator`` includes it."""
SERVER_SCOPES = (DEBUG, OPERATOR)
"""The scopes of what all tenants share. ``admin`` does not include them."""
SCOPES = ("runs:read", "runs:write", "approvals:write", "tools:execute", "admin", *SERVER_SCOPES)
"""Every scope. ``admin`` is for one tenant and includes all other scopes except the server's."""
JWT_OWNER_PREFIX = "jwt:"
"""The beginning of the ids of callers with a JWT. The owner of an API key cannot begin like this."""

_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:|+-]{0,127}", re.ASCII)


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a request."""

    id: str
    """The person or program, which owns the sessions that it creates: the owner of an API key, or ``jwt:``, a digest
    of the issuer and ``sub`` of a JWT."""
    namespace: str = ""
    """The tenant: the namespace of the store that the caller sees."""
    scopes: frozenset[str] = frozenset()
    key: str = ""
    """The credential that rate limits count, such as the id of an API key."""
    own_sessions_only: bool = False
    """Whether sessions of other owners in the namespace do not exist for the caller."""
    requests_per_minute: int = 0
    """The rate limit of the credential; 0: the limit of the server's settings."""

    expires: float = 0.0
    """Seconds since 1970 at which the credential ends, if it carries that itself, as a JWT does; 0: it does not."""

    def may(self, scope: str) -> bool:
        """Return whether the caller has a scope; ``""`` is no scope and every caller has it."""
        wider = OPERATOR if scope in SERVER_SCOPES else "admin"
        return not scope or scope in self.scopes or wider in self.scopes

    def may_see(self, info: SessionInfo) -> bool:
        """Return whether a session of the caller's tenant exists for the caller."""
        return not self.own_sessions_only or info.owner == self.id

    @property
    def visible_owner(self) -> str:
        """The owner whose sessions alone the caller sees; ``""``: all owners."""
        return self.id if self.own_sessions_only else ""


LOCAL_PRINCIPAL = Principal(id="local", key="local", scopes=frozenset(SCOPES))
"""The person at this machine: who opens the console's link, and every caller of a server without tokens."""


def check_tenant(name: str) -> str:
    """Return the name of a tenant, ``""`` for the default one. Raises ``InvalidInput`` for a name that is not valid."""
    if name and not _TENANT.fullmatch(name):
        raise InvalidInput(
            f"{name[:140]!r} is not the name of a tenant: expected a letter or digit, then at most 127 letters, digits "
            "or . _ @ : | + -"
        )
    return name
