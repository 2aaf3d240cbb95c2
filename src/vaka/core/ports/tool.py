"""The socket for tools."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from vaka.core.ports.files import Files
from vaka.core.ports.model import Model, Prompt
from vaka.core.ports.world import World
from vaka.core.types.content import Part, Stored
from vaka.core.types.ids import JSON, CallId, Digest, Path, SessionId, TurnId
from vaka.core.types.message import ToolResult
from vaka.core.types.tool import Arguments, Problem, ToolSpec


class ToolContext(Protocol):
    """What a running tool may reach; its only door to the world."""

    session: SessionId
    turn: TurnId
    path: Path
    call: CallId
    key: str
    """Stable over every attempt of this call: what an ``idempotent`` tool hands on."""
    attempt: int
    """1, and one more each time the call runs again after a crash."""
    folder: str
    """Where a command begins, as the rules were told; ``""`` for the working folder."""
    values: dict[str, Any]
    """What middleware and tools of this run share; gone after it."""

    @property
    def world(self) -> World:
        """The files, commands and network this runtime lends to tools."""
        ...

    @property
    def files(self) -> Files:
        """The files tools may touch. Raises ``ConfigError`` when the runtime lends none."""
        ...

    def kept(self, key: str) -> JSON:
        """Return a value the session keeps, ``None`` when there is none."""
        ...

    def keep(self, key: str, value: JSON) -> None:
        """Keep a value in the session's log, together with the result of this call; ``None`` removes it."""
        ...

    async def keep_first(self, key: str, value: JSON) -> None:
        """Keep a value at once, durable on return: for what must be known if the call does not come to its end."""
        ...

    async def put_away(self, text: str) -> Stored:
        """Keep a text too large for a result, durable on return, and return the part that stands for it.

        It is kept as long as a result of the session has the part; give it a ``preview`` for the model to read.
        """
        ...

    async def put_back(self, digest: Digest) -> str:
        """Return a text that was put away. Raises ``NotFound`` when it is not kept (any more)."""
        ...

    @property
    def stopping(self) -> bool:
        """True once the turn is being stopped; a tool in a thread should look and leave."""
        ...

    def emit(self, text: str) -> None:
        """Show a piece of output to whoever is watching. Safe to call from a thread."""
        ...

    async def consult(self, model: Model, prompt: Prompt) -> str:
        """Put a question of this call to a model and return its whole answer, which is recorded and counted.

        The model is not asked when a budget of the turn cannot pay for it: the call then fails with the reason
        ``limit``. Raises ``ModelError``.
        """
        ...

    async def ask(self, question: str, *, options: Sequence[str] = (), expires_in: float | None = None) -> JSON:
        """Ask a person and return the answer, ``None`` when nobody answers in time.

        Only ``resume`` and ``read`` tools should ask: the turn may be suspended here and the tool run again later.
        """
        ...


@runtime_checkable
class Tool(Protocol):
    """Something a model can call.

    ``parse`` reads what the model wrote; it never raises. ``call`` does the work; whatever it raises becomes a failed
    result the model reads. It is cancelled when the turn is stopped and should then leave at once.
    """

    @property
    def spec(self) -> ToolSpec:
        """The tool as models, rules and people see it; the same value every time."""
        ...

    def parse(self, raw: "str | dict[str, Any]") -> Arguments | Problem:
        """Return the arguments ``raw`` stands for, or what is wrong with them."""
        ...

    async def call(
        self, context: ToolContext, arguments: dict[str, Any]
    ) -> "ToolResult | Part | Sequence[Part] | JSON":
        """Do it. A string is shown to the model as it is, other data as JSON."""
        ...


class Lendable(Protocol):
    """Something that is a tool once the runtime has lent it what it works with."""

    @property
    def spec(self) -> ToolSpec:
        """The tool as models, rules and people see it."""
        ...

    def bind(self, lent: Any, /) -> Tool:
        """Return the tool."""
        ...
