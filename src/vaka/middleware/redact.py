"""Redaction: what looks like a secret reaches neither the log nor those who watch, registered or not."""

from collections.abc import Iterable, Sequence

from vaka.core.loop.middleware import Middleware
from vaka.core.loop.scope import Turn
from vaka.core.session.redact import Finder
from vaka.core.types.content import Content
from vaka.middleware.patterns import PERSONAL, SECRETS


class Redaction(Middleware):
    """Replaces known kinds of secrets in everything the session writes and shows, from its first turn here on.

    Registered secrets are replaced in every session anyway. With ``personal`` mail addresses, card, telephone and
    social security numbers are replaced too; ``finders`` adds kinds of one's own. The model sees the log, so it sees no
    secret either; a tool still gets the arguments that the model wrote.
    """

    def __init__(self, *, personal: bool = False, finders: Iterable[Finder] = ()) -> None:
        self.finders: Sequence[Finder] = (*SECRETS, *(PERSONAL if personal else ()), *finders)

    async def before_agent(self, turn: Turn, content: Content) -> Content:
        """Begin to look for them in this session; what was said now is not written yet."""
        known = turn.log.secrets.finders
        fresh = [finder for finder in self.finders if finder not in known]
        if fresh:
            turn.log.secrets = turn.log.secrets.also(*fresh)
        return content
