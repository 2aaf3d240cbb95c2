"""Continue a session where and how it was run: find its record, enter its folder, apply its flags again."""

import hashlib
import os
import re
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from vaka.agents.react import Agent
from vaka.cli.build_agent import MissingModel, load_agent_of_flags
from vaka.cli.command_store import CommandStore
from vaka.cli.kit.bootstrap import (
    ask_trust_once,
    can_ask,
    config_context,
    has_terminal,
    load_flag_settings,
    print_notes,
)
from vaka.cli.kit.errors import UsageError
from vaka.cli.kit.options import DEFINITION_SUFFIXES, expand_path
from vaka.cli.kit.render import quote_words
from vaka.config.documents import is_inline_json
from vaka.config.setting_keys import SETTING_KEYS
from vaka.config.settings import Settings, absolute_store_url, trust_root_of
from vaka.core.ports.store import BACKGROUND_TAG, SessionInfo, SessionQuery, Store
from vaka.core.session.snapshot import reopen
from vaka.core.types.control import RunSettings, SessionWorkspace
from vaka.core.types.errors import ConfigError, InvalidInput, NotFound
from vaka.core.types.ids import Digest, SessionId, parse_session_id
from vaka.core.types.message import replace_surrogates
from vaka.runtime.workspace import require_folder

_RECORDED_KEYS = tuple(key for key in SETTING_KEYS.values() if key.flag is not None and key.flag.recorded)
_STORED_NAMES = {key.name: key.stored_flag for key in SETTING_KEYS.values()}
"""The names that logs have for flags, by their names now."""
_SETTING_FLAGS = tuple(key.name for key in _RECORDED_KEYS if key.kind != "list")
"""Flags that are recorded also when a variable of the environment has set them."""
_TEXT_FLAGS = ("instructions", "system_prompt", "append_system_prompt")
"""Flags with a text, or with ``@`` and the name of a file."""
_LIST_FLAGS = ("option", "plugin_dir", "mcp_config")
"""Flags that may be repeated and are not settings."""
_SESSION_FLAGS = (
    *_SETTING_FLAGS,
    *_TEXT_FLAGS,
    "no_base_prompt",
    "settings",
    *(key.name for key in _RECORDED_KEYS if key.kind == "list"),
    *_LIST_FLAGS,
    "untrusted",
    "strict_mcp_config",
)
_TURN_FLAGS = ("tool_choice", "output_schema")
"""Flags that apply again only when the same turn goes on."""
_WIDENING_FLAGS = frozenset(
    {
        *(key.name for key in _RECORDED_KEYS if key.flag is not None and (key.widens or key.flag.widens)),
        "plugin_dir",
        "mcp_config",
    }
)
"""Flags that may permit more: a run that applies them again prints them; -v prints all."""
_PATH_FLAGS = ("settings", "output_schema")
_SCRIPTED = "scripted:"
_PAGE_SIZE = 50

T = TypeVar("T")


def unset_flags() -> dict[str, Any]:
    """Return the flags of a session as click gives those that are not on the command line."""
    repeated = {*_LIST_FLAGS, *(key.name for key in SETTING_KEYS.values() if key.kind == "list")}
    names = (*_SESSION_FLAGS, *(key.name for key in SETTING_KEYS.values() if key.flag is not None))
    return {name: () if name in repeated else None for name in names}


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session that a command continues, with what its log says about its folder and its last run."""

    id: SessionId
    workspace: SessionWorkspace | None = None
    run: RunSettings | None = None
    unfinished: bool = False
    """Whether it has an unfinished turn or a queued input."""


class ContinuedSession(msgspec.Struct, frozen=True, kw_only=True):
    """The flags and settings with which a session goes on, in its own folder."""

    record: SessionRecord | None
    """``None`` for a new session."""
    flags: dict[str, Any]
    settings: Settings
    elsewhere: bool = False
    """Whether the command was started in another project than the session's."""
    notes: tuple[str, ...] = ()

    @property
    def ask(self) -> str:
        """What a turn does when a person must decide, ``""`` for the default.

        Without a terminal the recorded mode applies, and a question of another project is left open.
        """
        mode: str = self.flags["ask"] or ""
        if can_ask():
            return mode
        recorded = self.record.run.flags.get("ask", "") if self.record is not None and self.record.run else ""
        mode = mode or recorded or self.settings["ask"] or "deny"
        return "suspend" if self.elsewhere and mode == "deny" else mode


def find_record(settings: Settings, reference: str) -> SessionRecord | None:
    """Return the record of ``ID[@SEQ]``, ``None`` when there is no such session."""
    return with_store(settings, partial(_find_record, reference=reference))


async def _find_record(store: Store, *, reference: str) -> SessionRecord | None:
    return await _read_record(store, (await resolve_session_ref(store, reference))[0])


async def _find_last_record(store: Store, *, project: Path | None) -> SessionRecord | None:
    return await _read_record(store, await _last_session(store, project))


def with_store(settings: Settings, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
    """Run ``work`` with the store of the settings, and close it."""
    with CommandStore() as place:
        return place.run_with_store(settings, work)


async def _read_record(store: Store, session: str) -> SessionRecord | None:
    id = parse_session_id(session)
    if await store.sessions.find(id) is None:
        return None
    state = (await reopen(store, id)).state
    unfinished = bool(state.turn or state.inputs)
    return SessionRecord(id=id, workspace=state.workspace, run=state.run, unfinished=unfinished)


async def resolve_session_ref(store: Store, text: str) -> tuple[str, str | None]:
    """Return session and place of ``ID[@SEQ]``; an id may contain an ``@`` itself."""
    origin, at, place = text.rpartition("@")
    if not at or not origin or not place or await store.sessions.find(SessionId(text)) is not None:
        return text, None
    return origin, place


async def _last_session(store: Store, project: Path | None) -> str:
    after = ""
    while True:
        page = await store.sessions.list(project_query(project, limit=_PAGE_SIZE, after=after))
        for info in page.sessions:
            if not info.erased and is_of_project(info, project):
                return info.id
        after = page.next
        if after:
            continue
        if project is None:
            raise NotFound("there is no session yet; leave --last out to create one")
        raise NotFound(
            f"there is no session of the project {str(project)!r} yet; leave --last out to create one, or add --all to "
            f"continue the last session of any project"
        )


def project_query(project: Path | None, **fields: Any) -> SessionQuery:
    """Return a query for the sessions of a project (``None``: of all projects); ``is_of_project`` excludes the rest."""
    folder = str(project or "")
    return SessionQuery(folder=folder if replace_surrogates(folder) == folder else "", **fields)


def is_of_project(info: SessionInfo, project: Path | None) -> bool:
    """Return whether a session belongs to a project, or to no folder; the folder of an erased one is not known.

    Sessions in the background do not.
    """
    if BACKGROUND_TAG in info.tags:
        return False
    if project is None or info.erased:
        return project is None
    return not info.folder or trust_root_of(Path(info.folder)) == project


def continue_session(
    record: SessionRecord | None, flags: Mapping[str, Any], settings: Settings, *, resume: bool = False
) -> ContinuedSession:
    """Enter the folder of a session and apply the flags of its last run again; flags given now win.

    Raises ``InvalidInput`` if the folder was moved, replaced or removed.
    """
    if record is None:
        return ContinuedSession(record=None, flags=dict(flags), settings=settings)
    notes: list[str] = []
    if record.workspace is None:
        notes.append(f"session {record.id} has no folder yet; it works here")
    before, project = Path.cwd(), trust_root_of(Path.cwd())
    flags = enter_folder(record, flags, settings)
    if Path.cwd() != before:
        notes.append(f"session {record.id} belongs to {Path.cwd()} and works there")
        if flags["trust"]:
            notes.append(
                f"--trust does not count: it is about the folder where it is typed, so type it in {Path.cwd()}"
            )
            flags["trust"] = False
    restored = apply_recorded_flags(flags, record.run, resume=resume)
    again = {name: value for name, value in restored.items() if value != flags.get(name)}
    again = {name: value for name, value in again.items() if flags["verbose"] or name in _WIDENING_FLAGS}
    if again:
        notes.append(f"as it was run before: {format_flags(again)}")
    continued = ContinuedSession(
        record=record,
        flags=restored,
        settings=settings,
        elsewhere=trust_root_of(Path.cwd()) != project,
        notes=tuple(notes),
    )
    with explain_recorded_flags(continued):
        return msgspec.structs.replace(continued, settings=load_flag_settings(restored, settings))


def find_record_of_flags(flags: Mapping[str, Any], settings: Settings, place: CommandStore) -> SessionRecord | None:
    """Return the record of the session that flags name, ``None`` for a new one. Raises ``NotFound`` for ``--last``."""
    if flags["last"]:
        project = None if flags["everywhere"] else trust_root_of(settings.context.cwd)
        return place.run_with_store(settings, partial(_find_last_record, project=project))
    for name in ("session", "fork"):
        if flags[name] == "":
            raise UsageError(f"--{name} is empty; give the id of a session, or leave --{name} out for a new one")
    reference = flags["fork"] or flags["session"]
    if not reference or settings["store"] == "memory:":
        return None
    return place.run_with_store(settings, partial(_find_record, reference=reference))


@contextmanager
def explain_recorded_flags(continued: ContinuedSession) -> Generator[None]:
    """Add to an error about the agent, the model or a file of the last run that a flag replaces it."""
    try:
        yield
    except (ConfigError, UsageError) as error:
        record, message = continued.record, str(error)
        run = record.run if record is not None else None
        if record is None or run is None:
            raise
        recorded = {"agent": (run.agent,), "model": (run.model,), "tools": run.tools}
        recorded |= {name: (str(run.flags.get(name) or ""),) for name in (*_TEXT_FLAGS, *_PATH_FLAGS)}
        for name, values in recorded.items():
            named = [value for value in values if value and _is_named(_file_of_flag(value), message)]
            if named and continued.flags[name] in (named[0], values):
                flag = format_flags({name: named[0]})
                hint = f"session {record.id!r} was last run with {flag}; give another --{name.replace('_', '-')}"
                raise ConfigError(f"{message}; {hint}") from error
        raise


def _is_named(name: str, message: str) -> bool:
    """Return whether a message has a name, and not only as a part of a longer one."""
    return re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w/-]|\.\w)", message) is not None


def _file_of_flag(value: str) -> str:
    """Return the part of a flag that an error names: the file of a scripted model, of an agent or of a text."""
    text = value.removeprefix(_SCRIPTED).removeprefix("@")
    return agent_file_of(text) or text


def load_continued(continued: ContinuedSession, note: Callable[[str], None]) -> tuple[ContinuedSession, Agent]:
    """Return a continuation with the settings of its folder, and its agent; report what has changed since."""
    flags, record = continued.flags, continued.record
    if continued.elsewhere and not flags["trust"]:
        ask_trust_once(config_context())
        continued = msgspec.structs.replace(continued, settings=load_flag_settings(flags))
    if continued.settings.notes:
        print_notes(continued.settings.notes)
    continued, agent = _load_agent_with_model(continued)
    for text in continued.notes:
        note(text)
    if record is not None:
        changed = changed_files(record.run, describe_run(continued, agent))
        print_notes(f"{file} has changed since session {record.id} was last run" for file in changed)
    return continued, agent


def _load_agent_with_model(continued: ContinuedSession) -> tuple[ContinuedSession, Agent]:
    """Return the agent; at a terminal ask for a model, if none is set, and for its key, if there is none."""
    flags = continued.flags
    asks = has_terminal() and flags.get("output") in (None, "text")
    try:
        agent = load_agent_of_flags(flags, continued.settings)
    except MissingModel:
        if not asks:
            raise
        from vaka.cli.commands.login import choose_first_model

        flags = {**flags, "model": choose_first_model()}
        continued = msgspec.structs.replace(continued, flags=flags, settings=load_flag_settings(flags))
        agent = load_agent_of_flags(flags, continued.settings)
    model = agent.model or continued.settings["model"]
    if asks and isinstance(model, str) and "/" in model and model not in continued.settings["models"]:
        from vaka.cli.commands.login import ask_missing_key

        ask_missing_key(model)
    return continued, agent


def enter_folder(record: SessionRecord, flags: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Change to the folder of a session; return the flags with absolute paths and with the store of the session."""
    if record.workspace is None:
        return dict(flags)
    require_folder(record.id, record.workspace)
    if record.workspace.root == str(Path.cwd()):
        return dict(flags)
    store = absolute_store_url(Path.cwd(), settings["store"])
    entered = {**absolute_flags(flags), "store": store, "durability": settings["durability"]}
    try:
        os.chdir(record.workspace.root)
    except OSError as error:
        raise InvalidInput(
            f"session {record.id!r} belongs to the folder {record.workspace.root!r}: {error.strerror}"
        ) from error
    return entered


def absolute_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return flags with absolute paths, so that they mean the same files in every folder."""
    changed = dict(flags)
    for name in _PATH_FLAGS:
        if flags.get(name) and not is_inline_json(flags[name]):
            changed[name] = _absolute_path(flags[name])
    if flags.get("agent"):
        changed["agent"] = _absolute_agent(flags["agent"])
    changed["tools"] = tuple(_absolute_path(file) for file in flags.get("tools") or ())
    if flags.get("mcp_config"):
        texts = flags["mcp_config"]
        changed["mcp_config"] = tuple(text if is_inline_json(text) else _absolute_path(text) for text in texts)
    for name in _TEXT_FLAGS:
        if (flags.get(name) or "").startswith("@"):
            changed[name] = f"@{_absolute_path(flags[name][1:])}"
    model = flags.get("model") or ""
    if model.startswith(_SCRIPTED):
        changed["model"] = f"{_SCRIPTED}{_absolute_path(model.removeprefix(_SCRIPTED))}"
    return changed


def _absolute_path(text: str) -> str:
    return os.path.abspath(expand_path(text))  # noqa: PTH100  # without resolving links


def _absolute_agent(text: str) -> str:
    """Return the file of ``--agent`` with an absolute path; the name of an agent stays as it is."""
    file = agent_file_of(text)
    return f"{_absolute_path(file)}{text.removeprefix(file)}" if file else text


def agent_file_of(text: str) -> str:
    """Return the file of ``--agent``, ``""`` for a name."""
    name, colon, _ = text.rpartition(":")
    if colon and name.endswith(".py"):
        return name
    return text if ".py" in text or text.endswith((".luau", *DEFINITION_SUFFIXES)) else ""


def apply_recorded_flags(flags: Mapping[str, Any], run: RunSettings | None, *, resume: bool) -> dict[str, Any]:
    """Return the flags; flags that were not given get their values from the last run of the session."""
    if run is None:
        return dict(flags)
    names = (*_SESSION_FLAGS, *_TURN_FLAGS) if resume else _SESSION_FLAGS
    recorded = {name: run.flags[stored] for name in names if (stored := _STORED_NAMES.get(name, name)) in run.flags}
    recorded |= {"agent": run.agent or None, "model": run.model or None, "tools": run.tools}
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    restored = {name: _as_flag(value) for name, value in recorded.items()}
    return {**flags, **restored, **given}


def _as_flag(value: Any) -> Any:
    """Return a recorded value as click gives it: JSON has lists for the tuples of flags that may be repeated."""
    return tuple(cast("list[str]", value)) if isinstance(value, list) else value


def describe_run(continued: ContinuedSession, agent: Agent) -> RunSettings:
    """Return how a session is run, for its log; names that are not valid UTF-8 are changed so that it can have them."""
    flags = absolute_flags(continued.flags)
    settings = continued.settings
    before = continued.record
    kept = {name: flags[name] for name in (*_SESSION_FLAGS, *_TURN_FLAGS) if flags.get(name) not in (None, ())}
    if "mcp_config" in kept:  # a text may have secrets; a later run names it again
        kept["mcp_config"] = tuple(text for text in kept["mcp_config"] if not is_inline_json(text))
    for name in _SETTING_FLAGS:
        if settings.values[name].layer == "environment":
            kept[name] = settings[name]
    recorded = before.run.flags.get("ask") if before is not None and before.run is not None else None
    ask = flags["ask"] or recorded
    if ask and ask != "wait":  # a later run without a terminal must not wait because this one did
        kept["ask"] = ask
    model = flags["model"] or (settings["model"] if agent.model is None else "")
    files = [file for file in (agent_file_of(flags["agent"] or ""), *flags["tools"]) if file]
    kept |= {"agent": flags["agent"] or "", "model": model, "tools": flags["tools"]}
    kept = {_STORED_NAMES.get(name, name): _as_text(value) for name, value in kept.items()}
    return RunSettings(
        agent=kept.pop("agent"),
        model=kept.pop("model"),
        tools=kept.pop("tools"),
        digests={replace_surrogates(file): _digest_of(file) for file in files},
        flags=msgspec.to_builtins(kept),
    )


def _as_text(value: Any) -> Any:
    """Return a flag as JSON can have it."""
    if isinstance(value, str):
        return replace_surrogates(value)
    return tuple(replace_surrogates(one) for one in cast("tuple[str, ...]", value)) if type(value) is tuple else value


def changed_files(before: RunSettings | None, now: RunSettings) -> list[str]:
    """Return the files of the agent and its tools that have changed since the last run of the session."""
    if before is None:
        return []
    return [file for file, digest in now.digests.items() if before.digests.get(file, digest) != digest]


def _digest_of(file: str) -> Digest:
    try:
        return Digest(hashlib.sha256(Path(file).read_bytes()).hexdigest())
    except OSError:  # it was loaded before, and is gone now
        return Digest("")


def format_flags(flags: Mapping[str, Any]) -> str:
    """Return flags as they are typed."""
    words: list[str] = []
    for name, value in flags.items():
        key = SETTING_KEYS.get(name)
        flag = key.flag_name if key is not None else f"--{name.replace('_', '-')}"
        values: list[Any] = [*value] if type(value) is tuple else [value]
        for one in values:
            words += [flag] if one is True else [flag, f"{one:g}" if isinstance(one, float) else str(one)]
    return quote_words(*words)
