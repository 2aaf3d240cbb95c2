"""The tool port: a tool, the context of a running call, and the world it may touch."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

import msgspec

from vaka.core.ports.files import Files
from vaka.core.ports.model import Model, Prompt
from vaka.core.ports.net import Network, SearchEngine
from vaka.core.ports.sandbox import Sandbox
from vaka.core.types.control import QuestionKind
from vaka.core.types.ids import JSON, AgentPath, CallId, Digest, SessionId, TurnId
from vaka.core.types.message import Part, Stored, ToolResult
from vaka.core.types.progress import OutputStream
from vaka.core.types.tool import CommandAccess, InvalidArguments, ParsedArguments, ToolSpec
from vaka.core.types.type_parameters import Deps_co, Deps_contra

SHELL_FOLDER_KEY = "shell.cwd"
"""The session value with the folder that the next command starts in, if it is not the working folder."""

CHANGED_FILE_KEY = "files.changed"
"""The session value with the content of a file before its latest change; the log has every earlier one."""

COMMAND_FILES_KEY = "files.command"
"""The session value with the record of the files before and after the latest command; the log has every earlier one."""

LINK_PREFIX = "link:"
"""The begin of the digest of a link in these values: the digest of its target follows."""


def shell_folder_key(path: AgentPath) -> str:
    """Return the key of the shell folder of the agent at ``path``: every agent has its own."""
    return "/".join((SHELL_FOLDER_KEY, *path)) if path else SHELL_FOLDER_KEY


class BackgroundTasks(Protocol):
    """Work that outlives the call that started it, such as background commands; its owner closes it."""

    async def close(self, session: SessionId | None = None) -> None:
        """End the tasks of a session, or all of them for good. Safe to call twice."""
        ...

    def announce(self, path: str) -> None:
        """Tell running commands that a tool is about to create a file: they would be taken to have created it."""
        ...


class FileBackups(Protocol):
    """Stores the content of files before they are changed."""

    async def back_up(self, path: str, *, becomes: Digest | None = None, session: str = "") -> JSON:
        """Store the content of a file whose new content will be ``becomes``; return a token that restores it.

        ``session``: the session whose log will have the token.
        """
        ...

    async def after(self, token: JSON) -> JSON:
        """Return the token, with the present content marked as written by the session."""
        ...


@runtime_checkable
class CommandBackups(Protocol):
    """Records the files of the workspace before and after a command, so that its changes can be undone.

    A record is plain JSON for the log under ``COMMAND_FILES_KEY``. A folder that cannot be recorded is named in it and
    does not stop the command.
    """

    async def begin_command(self, call: CallId, command: str) -> JSON:
        """Record the files before a command and return the record; ``None`` if the command changes no file."""
        ...

    async def end_command(self, begun: JSON, session: SessionId, *, goes_on: bool = False) -> JSON:
        """Return the record of a command after its end, or when it goes on in the background.

        What the files contained before is stored as blobs of the session.
        """
        ...


class StateValues(Protocol):
    """Values that tools keep in the log of the session, by key."""

    def get(self, key: str) -> JSON:
        """Return a value, ``None`` when there is none."""
        ...

    def set(self, key: str, value: JSON) -> None:
        """Set a value, stored together with the result of this call; ``None`` removes it."""
        ...

    async def set_now(self, key: str, value: JSON) -> None:
        """Set a value, durable on return: it is known also if the call does not finish."""
        ...


class SharedState(Protocol):
    """Values that several sessions share."""

    def change(self) -> AbstractAsyncContextManager[StateValues]:
        """Return the values to one caller at a time; what it sets is stored at the end, all or nothing."""
        ...


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a tool can use; a part that is ``None`` is missing in this runtime."""

    files: Files | None = None
    sandbox: Sandbox | None = None
    unconfined: Sandbox | None = None
    """Starts the commands that a person lets run without the sandbox; ``None``: none may."""
    network: Network | None = None
    shells: BackgroundTasks | None = None
    """The shell commands that tools start."""
    reader: Model | None = None
    """The model that answers questions about pages; without it the page itself is returned."""
    search: SearchEngine | None = None
    """The search engine; without it the one built into the tool."""
    snapshots: FileBackups | None = None
    """Backups of the files that tools change; without it changes cannot be undone."""
    may_read: Callable[[str], bool] | None = None
    """Whether the rules allow reading a file, by its absolute path; other files are not listed either."""
    tasks: SharedState | None = None
    """The task board that sessions share; without it every session has its own."""
    patience: float | None = None
    """Seconds a person has to answer a question of a tool; without it there is no limit."""
    cwd: str = ""
    """The absolute path that relative paths start from."""


class ToolContext(Protocol[Deps_co]):
    """The resources of a running tool: session, files, network, models and people."""

    session: SessionId
    turn: TurnId
    path: AgentPath
    call: CallId
    key: str
    """The idempotency key that an ``idempotent`` tool passes on: the same for every attempt of this call, and no other
    call has it, not even in a session that is deleted and created again."""
    attempt: int
    """1, and one more each time the call runs again after a crash."""
    folder: str | None
    """The folder in which the policy has judged a command, ``""`` for the working folder; ``None``: in no folder."""
    access: CommandAccess
    """Exceptions from the sandbox that the policy grants to a command."""
    values: dict[str, Any]
    """Values that middleware and tools of this run share; they are not stored."""

    @property
    def deps(self) -> Deps_co:
        """The dependencies given to ``Runtime.open(agent, deps=…)``; they live in this process only."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the session, as its first event recorded it."""
        ...

    @property
    def world(self) -> World:
        """The files, commands and network that tools may use."""
        ...

    @property
    def files(self) -> Files:
        """The files that tools may use. Raises ``ConfigError`` when the runtime has none."""
        ...

    @property
    def state(self) -> StateValues:
        """The values of the session, which are stored in its log."""
        ...

    async def store_text(self, text: str) -> Stored:
        """Store a text too large for a result, durable on return, and return the part that refers to it.

        It is stored as long as a result of the session has the part; give it a ``preview`` for the model to read.
        """
        ...

    async def load_text(self, digest: Digest) -> str:
        """Return a stored text. Raises ``NotFound`` when it was never stored or has been removed."""
        ...

    @property
    def stopping(self) -> bool:
        """True once the turn is being stopped; a tool in a thread should check it and return."""
        ...

    def emit(self, text: str, *, stream: OutputStream = "stdout") -> None:
        """Publish a piece of output to followers. Safe to call from a thread."""
        ...

    async def ask_model(self, model: Model, prompt: Prompt) -> str:
        """Send a prompt to a model and return its whole answer; the call is recorded and its usage counted.

        When a budget of the turn cannot pay for it, no request is made and the tool call fails with the reason
        ``limit``. Raises ``ModelError``.
        """
        ...

    async def ask(
        self,
        question: str,
        *,
        options: Sequence[str] = (),
        expires_in: float | None = None,
        kind: QuestionKind = "question",
    ) -> JSON:
        """Ask a person, or with the kind ``result`` the client, and return the answer, ``None`` without one in time.

        Only ``resume`` and ``read`` tools should ask: the turn may be suspended here and the tool run again later.
        """
        ...


@runtime_checkable
class Tool(Protocol[Deps_contra]):
    """A tool that a model can call.

    ``parse`` never raises. An exception of ``call`` becomes a failed result that the model reads. ``call`` is cancelled
    when the turn is stopped, and should then return at once.

    A tool may have a second value, ``traits``, which says what its calls do and what their arguments name; read it with
    ``find_traits``. It is not part of the spec. A tool without it has ``NO_TRAITS``.
    """

    @property
    def spec(self) -> ToolSpec:
        """The tool as models, rules and people see it; always the same value."""
        ...

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        """Return the arguments that the model wrote as ``raw``, or what is wrong with them."""
        ...

    async def call(
        self, context: ToolContext[Deps_contra], arguments: dict[str, Any]
    ) -> "ToolResult | Part | Sequence[Part] | JSON":
        """Run the tool. The model reads a string as it is, other data as JSON."""
        ...
