"""Background sessions, in which a model works on a memory: their ids, and their model."""

import hashlib

from vaka.core.ports.agent import AgentServices
from vaka.core.ports.model import Model
from vaka.core.types.errors import ConfigError

TIERS = ("low", "mid", "high")
_MAX_NAME = 150


def background_session(kind: str, session: str, owner: str) -> str:
    """Return the id of the background session of a session. Each owner that a session had has one of their own."""
    name = session if len(session) <= _MAX_NAME else f"{session[:_MAX_NAME]}~{digest_name(session)}"
    return f"{kind}.{name}.{digest_name(owner)}"


def digest_name(name: str) -> str:
    """Return a short name made from another one, without dots."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


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
