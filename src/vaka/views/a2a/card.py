"""The card by which an agent is found over A2A."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from vaka.core.types.errors import InvalidInput

PROTOCOL_VERSION = "1.0"
BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")
INPUT_MODES = ("text/plain", "application/json", "image/*", "audio/*", "application/pdf")


class DescribedAgent(Protocol):
    """An agent by what its card says about it."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...


def agent_card(
    agent: DescribedAgent,
    interfaces: Mapping[str, str],
    *,
    version: str,
    skills: Sequence[DescribedAgent] = (),
    details: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the card of an agent. Raises ``InvalidInput``.

    Args:
        agent: The card has its name and description.
        interfaces: The address of each binding: ``JSONRPC`` or ``HTTP+JSON``, the preferred one first.
        version: The version of the agent.
        skills: What the agent can do, such as the agents of a router; the agent itself when empty.
        details: Further fields, such as ``provider`` and ``securitySchemes``; they replace those made here.
    """
    if unknown := [binding for binding in interfaces if binding not in BINDINGS]:
        raise InvalidInput(f"binding {unknown[0]!r} is not one of {', '.join(BINDINGS)}")
    if not interfaces:
        raise InvalidInput("an agent card needs the address of one interface or more")
    return {
        "name": agent.name,
        "description": agent.description or agent.name,
        "version": version,
        "supportedInterfaces": [
            {"url": url, "protocolBinding": binding, "protocolVersion": PROTOCOL_VERSION}
            for binding, url in interfaces.items()
        ],
        "capabilities": {"streaming": True},
        "defaultInputModes": list(INPUT_MODES),
        "defaultOutputModes": ["text/plain"],
        "skills": [
            {"id": skill.name, "name": skill.name, "description": skill.description or skill.name, "tags": ["agent"]}
            for skill in skills or (agent,)
        ],
        **(details or {}),
    }
