"""The agents of a session that answer in the place of another: a router writes nothing, the agents it runs do."""

from collections.abc import Collection

from vaka.core.types import progress
from vaka.core.types.event import Event
from vaka.core.types.ids import AgentPath


class RoutedAgents:
    """The agents whose events count as events of the agent at ``path``: itself, and the agents that a router runs.

    ``routers`` are the names of the agents that are routers; without them nothing is tracked.
    """

    def __init__(self, path: AgentPath, routers: Collection[str]) -> None:
        self._path, self._routers = path, frozenset(routers)
        self._router_paths: set[AgentPath] = set()

    def answers(self, event: Event) -> bool:
        """Return whether the event belongs to one of these agents."""
        path = event.path
        if self._routers:
            self._note_router(event)
        if path == self._path:
            return True
        size = len(self._path)
        return path[:size] == self._path and all(self.is_router(path[:end]) for end in range(size, len(path)))

    def is_router(self, path: AgentPath) -> bool:
        return path in self._router_paths

    def _note_router(self, event: Event) -> None:
        match event.data:
            case progress.TurnStarted(agent=agent) | progress.TurnResumed(agent=agent):
                self._router_paths = {event.path} if agent in self._routers else set()
            case progress.SubagentStarted(agent=agent, child=child) if agent in self._routers:
                self._router_paths.add((*event.path, child))
            case _:
                pass
