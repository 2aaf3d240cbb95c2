"""Settings that are read again when their files change: permissions, hooks, variables of commands, MCP servers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.env import Env
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.core.types.event import Body
from vaka.core.types.message import ToolCall
from vaka.core.types.monitor import Logged
from vaka.core.types.tool import Layer
from vaka.policy.decision import is_stricter
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import resolve_mode
from vaka.system.file_states import FileStates, states_of

if TYPE_CHECKING:
    from vaka.config.hook_definition import Hook
    from vaka.mcp.definition import McpServer

CHECK_SECONDS = 1.0
"""While a turn runs, the files are looked at no more often than this."""


class LoadedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of files at one time."""

    layers: tuple[Layer, ...] = ()
    hooks: "tuple[Hook, ...]" = ()
    variables: Mapping[str, str] = {}
    """Environment variables of commands."""
    trusted: bool | None = None
    """Whether the folder is trusted; ``None`` if that cannot change."""
    servers: "tuple[McpServer, ...] | None" = None
    """The MCP servers, started or not; ``None`` if they cannot change."""
    notes: tuple[str, ...] = ()
    """The errors of files, whose earlier content still counts, and the servers that are not started."""


class SettingsSource(Protocol):
    """Where settings come from."""

    def places(self) -> Iterable[Path]:
        """Return the files and folders whose change may change the settings, existing or not."""
        ...

    def load(self) -> LoadedSettings:
        """Read the settings. Raises ``ConfigError`` or ``InvalidInput``."""
        ...


ApplySettings: TypeAlias = Callable[[LoadedSettings, LayeredPolicy], None]


class LiveSettings(Middleware):
    """Applies settings when their files have changed: all of them before a turn, in a turn only what tightens.

    Settings that cannot be read change nothing; a warning in the log says so once.
    """

    inherited = ("before_tool",)

    def __init__(
        self, source: SettingsSource, env: Env, apply: ApplySettings, loaded: LoadedSettings | None = None
    ) -> None:
        """Read and apply the settings, unless they are ``loaded`` already. Raises ``ConfigError``."""
        self._source, self._apply = source, apply
        policy = env.policy
        known = policy if isinstance(policy, LayeredPolicy) else None
        self._cwd, self._home = (known.cwd, known.home) if known is not None else ("", "")
        self._trusted = known is None or known.trusted
        self._places = tuple(source.places())
        self._applied_states: FileStates = states_of(self._places)
        self._seen_states: FileStates = self._applied_states
        self._checked_at = 0.0
        self._warnings: list[str] = []
        self._loaded = loaded if loaded is not None else source.load()
        self._first_states, self._first_loaded = self._applied_states, self._loaded
        self._known_notes = set(self._loaded.notes)
        if loaded is None:
            self._apply(self._loaded, self._make_policy(self._loaded))

    def copy_for(self, env: Env, apply: ApplySettings) -> "LiveSettings":
        """Return the same for another runtime that was made with the settings of the beginning.

        Its first turn applies what has changed since then.
        """
        made = LiveSettings(self._source, env, apply, self._first_loaded)
        made._applied_states = made._seen_states = made._first_states = self._first_states  # its own class
        return made

    @property
    def name(self) -> str:
        return "settings"

    def refresh(self) -> None:
        """Before a turn: apply all settings if a file has changed since they were applied."""
        if states_of(self._places) != self._applied_states:
            self.reload()

    def reload(self) -> None:
        """Read and apply all settings."""
        states = self._look()
        found = self._load(states)
        self._seen_states = states
        if found is not None:
            self._applied_states, self._loaded = states, found[0]
            self._apply(*found)

    async def before_step(self, turn: Turn) -> Sequence[Body]:
        warnings, self._warnings = self._warnings, []
        return [Logged(level="warning", message=text) for text in warnings]

    async def before_tool(self, turn: Turn, call: ToolCall) -> ToolCall:
        """In a turn: apply new rules that restrict, before the call is judged."""
        now = turn.env.clock.monotonic()
        if now - self._checked_at >= CHECK_SECONDS:
            self._checked_at = now
            self._tighten()
        return call

    def _tighten(self) -> None:
        if states_of(self._places) == self._seen_states:
            return
        states = self._look()
        found = self._load(states)
        self._seen_states = states
        if found is not None:
            layers = narrow_layers(self._loaded.layers, found[0].layers)
            servers = narrow_servers(self._loaded.servers, found[0].servers)
            narrowed = msgspec.structs.replace(self._loaded, layers=tuple(layers), servers=servers)
            self._loaded = narrowed
            self._apply(narrowed, self._make_policy(narrowed))

    def _look(self) -> FileStates:
        """Return the states of the files that settings come from now."""
        self._places = tuple(self._source.places())
        return states_of(self._places)

    def _make_policy(self, loaded: LoadedSettings) -> LayeredPolicy:
        trusted = loaded.trusted if loaded.trusted is not None else self._trusted
        return LayeredPolicy(loaded.layers, cwd=self._cwd, home=self._home, trusted=trusted)

    def _load(self, states: FileStates) -> tuple[LoadedSettings, LayeredPolicy] | None:
        try:
            loaded = self._source.load()
            self._warnings += [note for note in loaded.notes if note not in self._known_notes]
            self._known_notes = set(loaded.notes)
            return loaded, self._make_policy(loaded)
        except (ConfigError, InvalidInput) as error:
            if states != self._seen_states:
                self._warnings.append(f"the settings stay as they were, since a change cannot be read: {error}")
            return None


def narrow_servers(
    old: "tuple[McpServer, ...] | None", new: "tuple[McpServer, ...] | None"
) -> "tuple[McpServer, ...] | None":
    """Return the old servers, of which those that may not be started any more are refused."""
    refusals = {(server.name, server.origin): server.refusal for server in new or () if server.refusal}
    return old and tuple(server.refuse(refusals.get((server.name, server.origin), "")) for server in old)


def narrow_layers(old: Sequence[Layer], new: Sequence[Layer]) -> list[Layer]:
    """Return layers that allow what both allow, and restrict what either restricts."""
    allowed = {(layer.origin, rule) for layer in old for rule in layer.allow}
    folders = {(layer.origin, folder) for layer in old for folder in layer.directories}
    restricting = [msgspec.structs.replace(layer, allow=(), directories=(), mode="") for layer in old]
    kept = [
        msgspec.structs.replace(
            layer,
            mode="",
            allow=tuple(rule for rule in layer.allow if (layer.origin, rule) in allowed),
            directories=tuple(folder for folder in layer.directories if (layer.origin, folder) in folders),
        )
        for layer in new
    ]
    before, after = resolve_mode(old, []), resolve_mode(new, [])
    return [*restricting, *kept, Layer(name="settings", mode=after if is_stricter(after, before) else before)]
