"""The values that tools keep in the log of a session."""

import msgspec

from vaka.core.ports.log import EventWindow, Log
from vaka.core.types.control import StateChanged
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import JSON, AgentPath, EventScope
from vaka.core.types.state import agent_key

MAX_STATE_BYTES = 256 * 1024
"""The largest size of one value of the session state, as JSON."""


class SessionValues:
    """Reads and writes the values of a session under one scope of its log; implements ``StateValues``."""

    def __init__(self, log: Log, scope: EventScope) -> None:
        self._log, self._scope = log, scope

    def get(self, key: str) -> JSON:
        """Return a value, deferred changes included."""
        return self._log.get_value(key)

    def set(self, key: str, value: JSON) -> None:
        """Defer a value to the next write, at the latest that of the call's result."""
        self._log.defer(self._scope, _state_changed_event(key, value))

    async def set_now(self, key: str, value: JSON) -> None:
        """Write a value at once."""
        await self._log.append(self._scope, _state_changed_event(key, value))


def conversation_key(window: EventWindow, path: AgentPath, name: str) -> str:
    """Return the key of the value ``name`` of the conversation of the agent at ``path``.

    A child that continues the conversation of another has the same key. ``name`` begins with ``$``, so that scripts
    cannot set it.
    """
    return f"$agent/{agent_key(window.conversation_start(path))}/:{name}" if path else name


def _state_changed_event(key: str, value: JSON) -> StateChanged:
    size = len(msgspec.json.encode(value))
    if size > MAX_STATE_BYTES:
        raise InvalidInput(f"a value the session keeps has at most {MAX_STATE_BYTES} bytes, {key!r} has {size}")
    return StateChanged(key=key, value=value)
