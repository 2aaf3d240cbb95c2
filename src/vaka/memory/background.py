"""Background sessions, in which a model works on a memory: their ids, and their model."""

import hashlib
from collections.abc import Sequence

from vaka.core.ports.agent import AgentServices
from vaka.core.ports.model import Model
from vaka.core.ports.store import SessionInfo, SessionQuery, Store
from vaka.core.types.errors import ConfigError
from vaka.core.types.limits import Limits

TIERS = ("low", "mid", "high")
MAX_OWNERS = 200
"""The most owners of one session whose background sessions are found."""
_MAX_NAME = 150


def facts_session(session: str, owner: str) -> str:
    """Return the id of the session that extracts facts from another one: each owner that this one had has their own."""
    return f"{_facts_prefix(session)}{digest_name(owner)}"


async def list_facts_sessions(store: Store, session: str) -> Sequence[SessionInfo]:
    """Return the sessions that have extracted facts from another one: they have copies of what was said in it."""
    page = await store.sessions.list(SessionQuery(prefix=_facts_prefix(session), limit=MAX_OWNERS))
    return [info for info in page.sessions if info.id == facts_session(session, info.owner)]


def _facts_prefix(session: str) -> str:
    name = session if len(session) <= _MAX_NAME else f"{session[:_MAX_NAME]}~{digest_name(session)}"
    return f"facts.{name}."


def digest_name(name: str) -> str:
    """Return a short name made from another one, without dots."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def background_limits(timeout: float | None) -> Limits:
    """Return the limits of a turn of a background session. Raises ``ConfigError``."""
    if timeout is not None and not timeout > 0:
        raise ConfigError(f"timeout must be more than 0 seconds, or None for no limit, not {timeout!r}")
    return Limits(timeout=timeout)


def find_background_model(services: AgentServices, model: "Model | str") -> Model:
    """Return a model, also by name or tier; without a model for its tier the default of the runtime or the agent."""
    if not isinstance(model, str):
        return model
    try:
        return services.find_model(model)
    except ConfigError:
        if model not in TIERS:
            raise
        return services.find_model("default")
