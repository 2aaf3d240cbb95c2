"""The options of a runtime and of commands in groups; marks make flags, variables, settings and the reference."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec

from vaka.core.ports.env import AskMode
from vaka.core.ports.files import Files
from vaka.core.ports.model import Model
from vaka.core.ports.net import Network, SearchEngine
from vaka.core.ports.policy import Policy
from vaka.core.ports.sandbox import ResourceLimits, Sandbox
from vaka.core.ports.store import Store
from vaka.core.types.context import Compaction
from vaka.core.types.errors import ConfigError
from vaka.core.types.keywords import Flag, Key, UnevaluatedSignature
from vaka.core.types.message import Usage
from vaka.core.types.tool import Mode

if TYPE_CHECKING:
    from vaka.config.model_tables import ModelEntry, PriceEntry
    from vaka.core.ports.transformer import TransformerFactory


class OptionGroup(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True, metaclass=UnevaluatedSignature):
    """Options that belong together. Every field has a safe default; a sequence is stored as a tuple."""

    def __post_init__(self) -> None:
        for name, default in zip(self.__struct_fields__, self.__struct_defaults__, strict=True):
            value = getattr(self, name)
            if default != () or isinstance(value, tuple | OptionGroup):
                continue
            if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
                raise TypeError(f"{name} must be a sequence, not {type(value).__name__}: {repr(value)[:80]}")
            msgspec.structs.force_setattr(self, name, tuple(value))


class PermissionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An approval that a turn requests, for ``Permissions.handler``."""

    tool_name: str
    tool_params: Mapping[str, Any]
    session_id: str
    rule: str
    reason: str
    approval: str
    """The id of the approval."""


PermissionRequestHandler: TypeAlias = Callable[[PermissionRequest], Awaitable[Literal["allow", "deny", "ask"]]]


class Permissions(OptionGroup, frozen=True, kw_only=True):
    """Which tool calls run, and what happens when a person must decide."""

    mode: Annotated[Mode, Flag("--permission-mode", "What happens to calls that no rule matches.", widens=True)] = (
        "default"
    )
    """The decision for calls that no rule matches."""
    allow: Annotated[
        Sequence[str],
        Flag("--allow", "What may run, such as 'Bash(npm test:*)'; may be repeated.", metavar="RULE"),
        Key(widens=True),
    ] = ()
    """Rules of calls that run without an approval, such as ``Bash(npm test)``."""
    confirm: Annotated[
        Sequence[str], Flag("--confirm", "What a person must approve; may be repeated.", metavar="RULE")
    ] = ()
    """Rules of calls that a person must approve, each time or for the session."""
    deny: Annotated[Sequence[str], Flag("--deny", "What must not run; may be repeated, and wins.", metavar="RULE")] = ()
    """Rules of calls that are refused."""
    ask: Annotated[
        AskMode | None,
        Flag(
            "--ask",
            "When a person must decide: wait (default at a terminal and of servers), suspend the turn, or deny "
            "(default elsewhere).",
            recorded=False,
        ),
    ] = None
    """What a turn does when a person has to decide. Default: ``wait``, but ``deny`` for the entry point ``ci``; in the
    command line ``wait`` at a terminal and in servers, else ``deny``."""
    policy: Policy | None = None
    """The permission policy, in place of one made from the mode and the rules."""
    handler: PermissionRequestHandler | None = None
    """Called with each approval that a turn in this process requests. ``allow`` and ``deny`` decide it, ``ask`` leaves
    it to a person."""
    approver: str = "host"
    """The name that signs decisions of ``handler``."""
    question_timeout: float | None = None
    """Seconds until an unanswered question returns to the model, which then decides itself; default: no limit."""


class TokenStats(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of one model call, for ``Models.on_usage``."""

    session_id: str
    turn_id: str
    agent: str
    model: str
    usage: Usage
    timestamp: str


class Models(OptionGroup, frozen=True, kw_only=True):
    """The models that agents can name, what they cost, and how they are called."""

    factory: Callable[[], Model] | None = None
    """Creates the default model on first use, unless ``model`` is set. The runtime closes that model."""
    retries: Annotated[int | None, Key(kind="count")] = None
    """How often a failed model call is repeated; default: 4 times."""
    files: Annotated[Sequence[str], Key("model_files", widens=True, per_run=True, path="file")] = ()
    """Files and folders that define models in the GenX format."""
    entries: Annotated["Mapping[str, ModelEntry | Mapping[str, Any]]", Key("models", kind="table")] = {}
    """Models under names that you choose; each has the fields of ``[models.NAME]`` in a settings file."""
    tiers: Annotated[Mapping[str, Model | str], Key("tiers", kind="table")] = {}
    """Models by tier: ``low``, ``mid`` and ``high``. A tier is accepted wherever the name of a model is."""
    subagents: Annotated[Mapping[str, str], Key("subagents", kind="table")] = {}
    """The tier of subagents that set no model, by the name of the agent in lower case."""
    prices: Annotated["Mapping[str, PriceEntry | Mapping[str, Any]]", Key("prices", kind="table")] = {}
    """US dollars per million tokens, by model; these replace the built-in prices."""
    compaction: Annotated[Compaction, Key("compaction", kind="table", default={}, widens=True)] = Compaction()
    """When the contexts of agents that do not say it themselves are compacted, and what is kept."""
    cache: bool | None = None
    """Whether prompts are marked for the provider's cache; default: as the adapter of the provider does."""
    on_usage: Callable[[TokenStats], None] | None = None
    """Called with the usage of each model call of a turn in this process, after the log has it."""


class ToolWorkspace(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of tools apart from the working folder of a runtime, for ``Workspace.tools``."""

    folder: str = ""
    """The folder that file tools and commands work in; ``""``: they are off."""
    masked: tuple[str, ...] = ()
    """Folders that commands see empty, except for ``folder``, such as the folders of other users."""


class Workspace(OptionGroup, frozen=True, kw_only=True):
    """The folders in which tools work."""

    cwd: str = ""
    """The folder in which tools work; default: the current folder of the process."""
    project_root: str | None = None
    """The folder of the project, in place of ``cwd``. ``""`` and ``.`` find it: ``AGENTSDK_PROJECT_ROOT``, else the
    nearest folder above with ``.claude``, ``.git`` or ``pyproject.toml``, else the current folder."""
    add_dirs: Annotated[
        Sequence[str],
        Flag(
            "--add-dir",
            "A folder that tools may touch besides the working folder; may be repeated.",
            metavar="DIR",
        ),
        Key(widens=True, path="folder"),
    ] = ()
    """Further folders that tools may read and change."""
    files: Files | None = None
    """The file system of tools, in place of ``cwd`` and ``add_dirs``."""
    tools: ToolWorkspace | None = None
    """The folder of tools, in place of ``cwd``, ``add_dirs`` and ``files``, for callers that must not reach those.
    Hooks, MCP servers and the content of the project stay in ``cwd``. Commands need a sandbox that hides files."""
    snapshots: Annotated[bool, Key(widens=True)] = True
    """Whether files are copied before a tool changes them, so that ``rewind`` can restore them."""

    @property
    def folder(self) -> str:
        """The folder in which the runtime works: ``cwd``, else ``project_root``; ``""``: the folder of the process."""
        if self.cwd or self.project_root is None:
            return self.cwd
        return find_project_root(self.project_root)

    @property
    def tool_folder(self) -> str:
        """The folder in which tools work: the folder of ``tools``, else ``folder``; ``""`` for none."""
        return self.folder if self.tools is None else self.tools.folder


class Commands(OptionGroup, frozen=True, kw_only=True):
    """How commands run: their sandbox, and the hosts, variables and resources they may use."""

    sandbox: Annotated[
        Sandbox | Literal["auto", "on", "off"],
        Flag(
            "--sandbox",
            "Confine commands: auto (as well as this machine can, the default), on (or refuse to), off.",
            widens=True,
        ),
        Key(kind="text"),
    ] = "auto"
    """The sandbox of commands: ``auto`` uses the best one of this machine, ``on`` fails when there is none."""
    sandboxed: Sequence[Literal["mcp", "hooks"]] = ()
    """What besides commands runs in their sandbox: ``mcp`` for servers that are programs, ``hooks`` for hooks."""
    hosts: Annotated[
        Sequence[str],
        Flag(
            "--command-host",
            "A host that commands in the sandbox may reach, or * for all; may be repeated. By default none.",
            metavar="HOST[:PORT]",
        ),
        Key(widens=True),
    ] = ()
    """Hosts that commands may reach through a proxy; ``*`` for the whole network. Default: no network."""
    env: Annotated[
        Sequence[str],
        Flag(
            "--command-env",
            "A variable that commands may see though it looks like a secret; may be repeated.",
            metavar="NAME",
        ),
        Key(widens=True),
    ] = ()
    """Names of environment variables that commands may read although they look like secrets; ``*`` matches any text."""
    limits: ResourceLimits = ResourceLimits()
    """The CPU time, memory, processes and files that one command may use."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := [name for name in self.sandboxed if name not in ("mcp", "hooks")]:
            raise ConfigError(f"sandboxed: expected mcp or hooks, not {unknown[0]!r}")


class NetworkAccess(OptionGroup, frozen=True, kw_only=True):
    """The network access of tools and scripts."""

    trusted_hosts: Annotated[
        Sequence[str],
        Flag(
            "--allow-host",
            "A host that tools and scripts may reach though it is not public; may be repeated.",
            metavar="HOST[:PORT]",
        ),
        Key(widens=True),
    ] = ()
    """Hosts that tools and scripts may reach although they are not public, such as ``127.0.0.1:8080``."""
    client: Network | None = None
    """The network of tools and scripts; default: a network that reaches public addresses and ``trusted_hosts`` only."""
    search: SearchEngine | None = None
    """The search engine of the WebSearch tool."""


class Scripts(OptionGroup, frozen=True, kw_only=True):
    """The resources of Luau scripts."""

    env: Annotated[
        Mapping[str, str],
        Flag("--env", "A variable of the environment that scripts may see; may be repeated.", metavar="NAME"),
        Key("script_env", kind="list", default=(), widens=True),
    ] = {}
    """The environment variables that scripts can read. Settings have the names; the process has the values."""
    transformers: "Mapping[str, TransformerFactory]" = {}
    """Transformers that trusted scripts can open by name, besides the built-in ones."""


class Storage(OptionGroup, frozen=True, kw_only=True):
    """How the store is used, and what must not be stored."""

    durability: Annotated[
        Literal["power", "process"],
        Flag(
            "--durability",
            "What an event survives: a power cut (default), or the death of the process.",
            recorded=False,
        ),
        Key(widens=True),
    ] = "power"
    """What an acknowledged event survives: a ``power`` cut, or only the death of the ``process``, which is faster."""
    namespace: str = ""
    """The namespace of the store, also of a ``Store`` that is given; sessions of other namespaces are not visible."""
    task_store: Store | str | None = None
    """Where the task board is kept that all sessions share: a store, which you close, or a URL. Default: every session
    has a board of its own in its log."""
    secrets: Sequence[str] = ()
    """Values that are redacted from everything that is stored or shown; each has at least 8 characters."""
    redact_patterns: Annotated[bool, Key(widens=True)] = True
    """Whether texts that look like a token, a key or a password are redacted, too, by the formats of known kinds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.task_store is None or isinstance(self.task_store, str) or is_store(self.task_store)):
            raise TypeError(f"task_store must be a store or a URL, not {type(self.task_store).__name__}")


class CommandLine(OptionGroup, frozen=True, kw_only=True):
    """The store, the model and the agents of commands, what they print, and what ``vaka serve`` offers."""

    store: Annotated[
        str,
        Flag(
            "--store",
            "memory:, sqlite:///PATH or postgresql://… (default: a SQLite file in your data folder).",
            metavar="URL",
            recorded=False,
        ),
        Key(widens=True),
    ] = ""
    """Where sessions are stored; default: ``vaka.db`` in the data folder of the user."""
    model: Annotated[
        str,
        Flag(
            "--model",
            "The model: PROVIDER/NAME such as openai/gpt-5-mini, a name or a tier of your settings, local (a small one "
            "on this machine, without a key), or scripted:FILE. `vaka models list` shows what there is.",
            metavar="NAME",
            recorded=False,
        ),
    ] = ""
    """The model of agents that set none."""
    builtin_tools: Annotated[
        Sequence[str],
        Flag(
            "--builtin-tools",
            "vaka's own tools to offer: all, none, or a name such as Read; may be repeated. All by default, none where "
            "--agent FILE or --tools brings others.",
            metavar="NAME",
        ),
    ] = ()
    """The built-in tools that agents get: ``all``, ``none``, or names. Default: ``all``, but none for agents that bring
    tools, and for ``local``."""
    definitions: Annotated[str, Key(path="folder")] = ""
    """The folder with the definitions of agents, relative to the file; default: the folder of the project."""
    output: Annotated[
        Literal["text", "json", "stream-json"],
        Flag("--output", "text (default), json, or stream-json: one event per line.", recorded=False),
    ] = "text"
    """The form of the output of ``vaka run``."""
    theme: Annotated[
        Literal["auto", "dark", "light", "none"], Flag("--theme", "Colours; auto asks the terminal.", recorded=False)
    ] = "auto"
    """The colours of the chat; ``auto`` follows the background of the terminal."""
    plain: Annotated[
        bool, Flag("--plain", "Print lines only, for screen readers: nothing is drawn again.", recorded=False)
    ] = False
    """Whether the chat prints lines only."""
    notify: Annotated[Literal["off", "bell", "desktop"], Key()] = "bell"
    """What the chat does when it needs you and the terminal has no focus."""
    lang: Annotated[Literal["en", "zh"] | None, Key()] = None
    """The language of the interface; default: the language of the locale (``LC_ALL``, ``LC_MESSAGES``, ``LANG``)."""
    server: Annotated[Mapping[str, Any], Key(kind="table", widens=True)] = {}
    """How ``vaka serve`` listens, whom it accepts, and how much one caller may use."""
    features: Annotated[Mapping[str, Any], Key(kind="table", widens=True)] = {}
    """What ``vaka serve`` offers besides its own API, each ``true`` or ``false``; default: all ``true``."""


def is_store(value: object) -> bool:
    """Whether a value has the parts of a ``Store``."""
    return hasattr(getattr(value, "events", None), "claim") and hasattr(getattr(value, "sessions", None), "find")


_PROJECT_MARKERS = (".claude", ".git", "pyproject.toml")


def find_project_root(folder: str) -> str:
    """Return the root of a project; ``""`` and ``.`` search upwards from the current folder."""
    if folder not in ("", "."):
        return str(Path(folder).resolve())
    named = os.environ.get("AGENTSDK_PROJECT_ROOT")
    here = Path(named).resolve() if named else Path.cwd()
    if named:
        return str(here)
    marked = (place for place in (here, *here.parents) if any((place / name).exists() for name in _PROJECT_MARKERS))
    return str(next(marked, here))
