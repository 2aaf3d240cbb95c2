"""What a script is to its host: it runs until it needs something, says what, and goes on when it is told.

The VM behind it may be in this process or in another one; a plain generator stands in for it in tests.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from vaka.core.loop.nest import Request, Told
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON
from vaka.core.types.message import ToolResult


class Call(NamedTuple):
    """Something a script wants from its host; ids count from 1 in the order of the program."""

    id: int
    name: str
    args: Sequence[JSON]


class Waiting(NamedTuple):
    """All coroutines of the script wait. ``calls`` are new, for those in ``dropped`` nobody waits any more."""

    calls: Sequence[Call]
    dropped: Sequence[int] = ()


class Done(NamedTuple):
    """The script has ended and returned these values."""

    values: Sequence[JSON]


Step: TypeAlias = Waiting | Done


class Script(Protocol):
    """A script in its VM. ``at`` is its clock until the next step, in milliseconds since 1970.

    Every method raises ``ScriptError`` when the script failed, ``ScriptLimit`` when it used too much.
    """

    async def start(self, arguments: Sequence[JSON], *, seed: int, at: int) -> Step:
        """Run until it waits or ends."""
        ...

    async def answer(self, call: int, values: Sequence[JSON], *, at: int) -> Step:
        """Give a call its results and run on."""
        ...

    async def fail(self, call: int, error: JSON, *, at: int) -> Step:
        """Raise an error, which the script may catch, where the call was made, and run on."""
        ...

    async def close(self) -> None:
        """Let go of the script; twice is once."""
        ...


class Several(tuple[JSON, ...]):
    """What a host function returns to give a script several results."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class HostFunction:
    """An async function a script can call. It raises ``ScriptError`` for what the script may catch.

    One that returns a ``ToolResult`` gives the script what ``plain`` makes of it.
    """

    function: Callable[..., Awaitable[Any]]
    asks: bool = False
    """Whether it wants the ``Request`` as its first argument."""
    local: bool = False
    """Its answer follows from what the script was told: it is not recorded, and runs again when a script is replayed.

    It is answered at once, before anything else."""
    lasting: bool = False
    """Its answer must be in the log before the script goes on."""


Functions: TypeAlias = Mapping[str, HostFunction]
"""What a script can call, by name: ``http.get``, ``agent.state.set`` …"""


class Ledger(Protocol):
    """Remembers what a script was told. ``vaka.core.loop.nest.Nest`` keeps it in a session's log."""

    def start(self, detail: JSON) -> Told:
        """Return the start of the script, remembered or new; ``detail`` is what is decided once, such as its seed."""
        ...

    def replay(self) -> AsyncGenerator[Told]:
        """Yield what the script was told after its start, in order."""
        ...

    async def tell(self, request: Request, value: JSON, error: str = "", result: ToolResult | None = None) -> Told:
        """Remember an answer, and return it as it will be remembered."""
        ...

    async def commit(self) -> None:
        """Return when everything so far will be remembered whatever happens."""
        ...


def plain(result: ToolResult) -> JSON:
    """Return the result of a tool as a script sees it; raise ``ScriptError`` for one that failed."""
    if result.failed:
        raise ScriptError(result.text or result.reason)
    return result.text if result.value is None else result.value
