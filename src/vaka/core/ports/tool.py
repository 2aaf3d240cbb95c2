"""The tool port: a tool, the context of a running call, and the world it may touch."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from vaka.core.ports.files import Files
from vaka.core.ports.model import Model, Prompt
from vaka.core.ports.net import Network, SearchEngine
from vaka.core.ports.sandbox import Sandbox
from vaka.core.types.ids import JSON, AgentPath, CallId, Digest, SessionId, TurnId
from vaka.core.types.message import Part, Stored, ToolResult
from vaka.core.types.tool import InvalidArguments, ParsedArguments, ToolSpec

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    DepsT_co = TypeVar("DepsT_co", covariant=True, default=Any)
else:  # Python 3.11 and 3.12 have no defaults of type variables, and only type checkers need them
    from typing import TypeVar

    DepsT_co = TypeVar("DepsT_co", covariant=True)

SHELL_FOLDER_KEY = "shell.cwd"
"""The value of a session that says in which folder its next command begins, if not in the working folder."""

CHANGED_FILE_KEY = "files.changed"
"""The value of a session that says what the file held that it is about to change; the log has all of them."""


def shell_folder_key(path: AgentPath) -> str:
    """Return the name of that value for the agent at a path: a child begins anew, and moves nobody but itself."""
    return "/".join((SHELL_FOLDER_KEY, *path))


class BackgroundTasks(Protocol):
    """What goes on after the call that began it, such as a command in the background; whoever lends it ends it."""

    async def close(self, session: SessionId | None = None) -> None:
        """End what belongs to a session, or everything for good. Safe to call twice."""
        ...


class FileBackups(Protocol):
    """Keeps what files hold before they are changed."""

    async def back_up(self, path: str, *, becomes: Digest | None = None) -> JSON:
        """Keep what a file holds now, which is to hold ``becomes``; return what brings it back."""
        ...


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a tool can touch; what is ``None`` is not there for this runtime."""

    files: Files | None = None
    sandbox: Sandbox | None = None
    network: Network | None = None
    shells: BackgroundTasks | None = None
    """Where commands run that tools start."""
    reader: Model | None = None
    """The model that answers questions about pages; without it they are told as they are."""
    search: SearchEngine | None = None
    """Who finds pages; without it the one that comes with the tool is asked."""
    snapshots: FileBackups | None = None
    """Keeps what file tools are about to change; without it they change it for good."""
    may_read: Callable[[str], bool] | None = None
    """Whether the rules let a file be read, by its absolute path: what they do not is not listed either."""
    patience: float | None = None
    """Seconds a person has for a question of a tool; any time without it."""
    cwd: str = ""
    """Where relative paths begin, as a folder of this machine."""


class ToolContext(Protocol[DepsT_co]):
    """What a running tool may reach; its only door to the world."""

    session: SessionId
    turn: TurnId
    path: AgentPath
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
    def deps(self) -> DepsT_co:
        """The dependencies given to ``Runtime.open(agent, deps=…)``; they live in this process only."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the session, as its first event recorded it."""
        ...

    @property
    def world(self) -> World:
        """The files, commands and network this runtime lends to tools."""
        ...

    @property
    def files(self) -> Files:
        """The files tools may touch. Raises ``ConfigError`` when the runtime lends none."""
        ...

    def get_state(self, key: str) -> JSON:
        """Return a value the session keeps, ``None`` when there is none."""
        ...

    def set_state(self, key: str, value: JSON) -> None:
        """Keep a value in the session's log, together with the result of this call; ``None`` removes it."""
        ...

    async def set_state_now(self, key: str, value: JSON) -> None:
        """Keep a value at once, durable on return: for what must be known if the call does not come to its end."""
        ...

    async def store_text(self, text: str) -> Stored:
        """Keep a text too large for a result, durable on return, and return the part that stands for it.

        It is kept as long as a result of the session has the part; give it a ``preview`` for the model to read.
        """
        ...

    async def load_text(self, digest: Digest) -> str:
        """Return a text that was put away. Raises ``NotFound`` when it is not kept (any more)."""
        ...

    @property
    def stopping(self) -> bool:
        """True once the turn is being stopped; a tool in a thread should look and leave."""
        ...

    def emit(self, text: str) -> None:
        """Show a piece of output to whoever is watching. Safe to call from a thread."""
        ...

    async def ask_model(self, model: Model, prompt: Prompt) -> str:
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

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        """Return the arguments ``raw`` stands for, or what is wrong with them."""
        ...

    async def call(
        self, context: ToolContext, arguments: dict[str, Any]
    ) -> "ToolResult | Part | Sequence[Part] | JSON":
        """Do it. A string is shown to the model as it is, other data as JSON."""
        ...


class BindableTool(Protocol):
    """Something that is a tool once the runtime has lent it what it works with."""

    @property
    def spec(self) -> ToolSpec:
        """The tool as models, rules and people see it."""
        ...

    def bind(self, services: Any, /) -> Tool:
        """Return the tool."""
        ...
