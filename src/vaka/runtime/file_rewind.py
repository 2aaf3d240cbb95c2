"""Rewind files with their session: restore what file tools and commands changed after a position in the log."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from vaka.core.ports.files import Files
from vaka.core.ports.store import Store
from vaka.core.ports.tool import CHANGED_FILE_KEY, COMMAND_FILES_KEY, World
from vaka.core.types.control import StateChanged
from vaka.core.types.errors import FileError, InvalidInput, NotFound
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON, CallId, Cursor, SessionId
from vaka.core.types.message import ToolResult
from vaka.core.types.progress import ToolCompleted, ToolFailed, ToolStarted
from vaka.core.types.traits import find_builtin_traits
from vaka.files.command_changes import CommandRecord, CommandRecorder, ReadChanges, parse_record
from vaka.files.snapshots import (
    NO_FILE,
    CommandSnapshots,
    FileChange,
    FileMode,
    FileSnapshots,
    RestorePlan,
    RestoreStep,
    decode_token,
    overwrite_error,
)
from vaka.runtime.command_records import is_read_only
from vaka.runtime.session_edits import open_boundary, rewind


class FileRewind(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a rewind on the files."""

    restored: tuple[str, ...] = ()
    """Files whose earlier content is restored."""
    removed: tuple[str, ...] = ()
    """Files that did not exist at that position and are deleted."""
    changed: tuple[str, ...] = ()
    """Files of both lists that another program has changed since; overwriting them needs ``force``."""
    unclear: tuple[str, ...] = ()
    """Files that changed while only a command in the background ran. They stay as they are, unless ``force`` is set."""
    lost: tuple[str, ...] = ()
    """Files that tools and commands changed without a stored copy; they stay as they are."""
    unnamed: int = 0
    """The number of further lost files, which the log does not name."""
    ran: int = 0
    """The number of commands that have run since and may have changed files."""
    commands: int = 0
    """The number of commands since of which no change is recorded; what they changed stays."""
    reasons: tuple[str, ...] = ()
    """Why changes of commands are not recorded."""


class FileVersions(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a session has changed; ``None`` stands for no file."""

    path: str
    before: bytes | None
    """The content before the first change."""
    now: bytes | None
    is_shared: bool = False
    """Whether another program has changed it too."""
    new_mode: FileMode = ""
    """Whether it can be run now, if that has changed."""


class NetChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of a session to the files, compared with the present files."""

    files: tuple[FileVersions, ...] = ()
    effect: FileRewind = FileRewind()
    """The effect of a rewind to the begin of the session, with names of files whose content is not known."""


class FileAccess(NamedTuple):
    """The files of a runtime, and the recorder of its commands."""

    store: Store
    files: Files
    recorder: CommandRecorder


def make_access(store: Store, world: World) -> FileAccess:
    """Return the access to the files of a runtime. Raises ``ConfigError`` if it has none."""
    files, snapshots = world.files, world.snapshots
    if files is None:
        raise InvalidInput("this runtime has no files to restore; set Workspace(files=…) or Workspace(cwd=…)")
    if isinstance(snapshots, CommandSnapshots) and isinstance(snapshots.recorder, CommandRecorder):
        return FileAccess(store, files, snapshots.recorder)
    return FileAccess(store, files, CommandRecorder([], "", store.blobs, is_read_only=is_read_only))


class _FileHistory:
    """The file changes that the log records after a position, on every branch."""

    def __init__(self) -> None:
        self.changes: list[FileChange | CommandRecord] = []
        self.paths: set[str] = set()
        self.commands: dict[CallId, str] = {}
        """The commands that have run."""
        self.records: dict[CallId, CommandRecord] = {}
        """The last record of each command."""
        self.begun: list[CommandRecord] = []

    def add_record(self, value: JSON) -> None:
        record = parse_record(value)
        self.records[record.call] = record
        self.changes.append(record)
        if record.state == "begun":
            self.begun.append(record)

    @property
    def killed(self) -> CommandRecord | None:
        """The record of the last command if vaka was killed while it ran, and nothing has recorded its changes."""
        last = self.begun[-1] if self.begun else None
        return last if last is not None and self.records[last.call] is last else None


class _Restore(NamedTuple):
    """A restore that is planned."""

    plan: RestorePlan
    contents: dict[str, bytes]
    """Contents by digest."""
    folders: list[str]
    """Folders that commands have created."""
    effect: FileRewind
    killed: CommandRecord | None
    """A command that ran when vaka was killed; its changes are to be recorded before files are restored."""


async def preview_file_rewind(
    access: FileAccess, session: SessionId, to: "Cursor | str", *, force: bool = False
) -> FileRewind:
    """Return the effect that ``rewind_with_files`` would have, without changing any file."""
    prefix = await open_boundary(access.store, session, to)
    return (await _plan_restore(access, session, prefix.seq, force=force)).effect


async def rewind_with_files(
    access: FileAccess, session: SessionId, to: "Cursor | str", timestamp: str, *, force: bool = False
) -> tuple[Event, FileRewind]:
    """Rewind a session and the files that its tools and commands changed. Every check runs before the first change.

    Raises ``FileChanged`` for files that another program has changed since, unless ``force`` is set. The current
    content of the files is stored first, and the append that rewinds the session records it: after a crash the same
    call continues, and a rewind to a position after this one undoes it.
    """
    prefix = await open_boundary(access.store, session, to)
    snapshots = FileSnapshots(access.files, access.store.blobs)
    plan, contents, folders, effect, killed = await _plan_restore(access, session, prefix.seq, force=force)
    if plan.changed and not force:
        raise overwrite_error(plan.changed)
    copies = await snapshots.load_copies(plan.steps, contents)
    backups = [
        *await _record_killed_command(access.recorder, killed, session),
        *[StateChanged(key=CHANGED_FILE_KEY, value=await snapshots.back_up_step(step, session)) for step in plan.steps],
    ]
    event = await rewind(access.store, session, prefix, timestamp, backups)
    try:
        await snapshots.apply_steps(plan.steps, copies)
        await snapshots.remove_empty_folders(folders)
    except FileError as error:
        raise FileError(
            f"the session was rewound to event {prefix.seq}, but not all of its files: {error}; "
            f"another rewind with files to {prefix.seq} restores the rest"
        ) from error
    return event, effect


async def _record_killed_command(
    recorder: CommandRecorder, killed: CommandRecord | None, session: SessionId
) -> list[StateChanged]:
    """Return the event with the changes of a killed command: after the restore, the files do not show them any more."""
    if killed is None:
        return []
    try:
        return [StateChanged(key=COMMAND_FILES_KEY, value=await recorder.end_killed_command(killed, session))]
    except NotFound:
        return []  # the effect of the rewind names the reason


async def read_net_changes(access: FileAccess, session: SessionId) -> NetChanges:
    """Return what a session has changed in the files: their content before its first change, and now."""
    if await access.store.sessions.find(session) is None:
        return NetChanges()
    snapshots = FileSnapshots(access.files, access.store.blobs)
    plan, contents, _, effect, _ = await _plan_restore(access, session, 0, force=False)
    copies = await snapshots.load_copies(plan.steps, contents)
    versions = list[FileVersions]()
    for step in plan.steps:
        now = await snapshots.read_content(step)
        versions.append(
            FileVersions(
                path=step.path,
                before=now if step.now == step.was else copies.get(step.path),
                now=now,
                is_shared=step.path in plan.changed,
                new_mode=step.now_mode if step.mode and step.mode != step.now_mode else "",
            )
        )
    return NetChanges(files=tuple(versions), effect=effect)


async def _plan_restore(access: FileAccess, session: SessionId, after: int, *, force: bool) -> _Restore:
    history = await _read_file_history(access.store, session, after)
    expansion = _Expansion(access, history)
    await expansion.read()
    snapshots = FileSnapshots(access.files, access.store.blobs)
    plan = await snapshots.plan_restore(expansion.changes)
    unclear = await _plan_unclear(snapshots, expansion, plan)
    if force:
        plan = msgspec.structs.replace(plan, steps=(*plan.steps, *unclear))
    effect = _summarize(expansion, plan, () if force else unclear)
    return _Restore(plan, expansion.contents, expansion.folders, effect, history.killed)


async def _plan_unclear(
    snapshots: FileSnapshots, expansion: "_Expansion", plan: RestorePlan
) -> tuple[RestoreStep, ...]:
    """Return the steps for files that changed while commands ran in the background, and that nothing else explains."""
    explained = {change.path for change in expansion.changes} | {step.path for step in plan.steps}
    changes = [change for change in expansion.background if change.path not in explained]
    return (await snapshots.plan_restore(changes)).steps


async def _read_file_history(store: Store, session: SessionId, after: int) -> _FileHistory:
    history, writing_calls = _FileHistory(), set[CallId]()
    async with aclosing(store.events.read(session, after=after)) as events:
        async for event in events:
            body = event.data
            if isinstance(body, StateChanged) and body.key == CHANGED_FILE_KEY:
                history.changes.append(decode_token(body.value))
            elif isinstance(body, StateChanged) and body.key == COMMAND_FILES_KEY:
                history.add_record(body.value)
            elif isinstance(body, ToolStarted):
                traits = find_builtin_traits(body.call.name)
                if traits.writes:
                    writing_calls.add(body.call.id)
                if traits.command:
                    history.commands[body.call.id] = str(body.call.arguments.get(traits.command, ""))
            elif isinstance(body, ToolCompleted) and body.result.call in writing_calls:
                history.paths |= _changed_paths(body.result.value)
            elif isinstance(body, ToolFailed) and _began_nothing(body.result, history):
                history.commands.pop(body.result.call, None)
    return history


def _began_nothing(result: ToolResult, history: _FileHistory) -> bool:
    """Return whether a call failed before its command began, for example because of invalid arguments."""
    is_error = result.reason in ("error", "invalid_arguments")
    return is_error and result.value is None and result.call not in history.records


class _ChangedFile(msgspec.Struct):
    """The result of a file tool that changed a file."""

    path: str
    after: str


def _changed_paths(value: JSON) -> set[str]:
    try:
        return {msgspec.convert(value, _ChangedFile).path}
    except msgspec.ValidationError:
        return set()  # the call changed no file


class _Expansion:
    """The changes of a history. The changes that commands made come from packs or from a comparison with the files."""

    def __init__(self, access: FileAccess, history: _FileHistory) -> None:
        self._access, self._history = access, history
        self.changes: list[FileChange] = []
        self.background: list[FileChange] = []
        """Changes since commands went on in the background."""
        self.contents: dict[str, bytes] = {}
        self._seen: set[str] = set()
        self._killed: set[int] = set()
        """The places in ``changes`` of changes by commands that ran when vaka was killed."""
        self.folders: list[str] = []
        self.lost: set[str] = set()
        self.unnamed_count = 0
        self.reasons: dict[str, None] = {}
        self.ran: set[CallId] = set()
        self.unrecorded: set[CallId] = set()

    async def read(self) -> None:
        """Read the changes of each command."""
        history, begun = self._history, 0
        for change in history.changes:
            if isinstance(change, FileChange):
                self._add([change], {})
            elif change.state == "begun":
                begun += 1
                await self._read_killed(change, history.begun[begun] if begun < len(history.begun) else None)
            elif not change.killed:
                await self._read_record(change)
        self._continue_killed()
        self.lost |= history.paths - {change.path for change in self.changes}
        is_read_only = self._access.recorder.is_read_only
        self.ran = {call for call, command in history.commands.items() if not is_read_only(command)}
        self.unrecorded |= self.ran - history.records.keys()

    async def _read_killed(self, begun: CommandRecord, later: CommandRecord | None) -> None:
        """Read the changes of a command that ran when vaka was killed, at the place in the log where it began."""
        last = self._history.records[begun.call]
        if not last.killed and last is not begun:
            return
        found = await (self._access.recorder.read_packs(last) if last.killed else self._compare(begun, later))
        self._killed.update(range(len(self.changes), len(self.changes) + len(found.changes)))
        self._add(found.changes, found.contents)

    def _continue_killed(self) -> None:
        """Let each change of a killed command end where the next change of the same file begins."""
        following = dict[str, FileChange]()
        for number in range(len(self.changes) - 1, -1, -1):
            change = self.changes[number]
            after = following.get(change.path)
            if number in self._killed and after is not None:
                change = msgspec.structs.replace(change, becomes=after.was, new_mode=after.mode or change.new_mode)
                self.changes[number] = change
            following[change.path] = change

    async def _read_record(self, record: CommandRecord) -> None:
        self.folders += record.folders
        self.lost.update(record.lost)
        self.unnamed_count += record.lost_count - len(record.lost)
        for reason in record.reasons:
            self.reasons[reason] = None
        if record.reasons:
            self.unrecorded.add(record.call)
        found = await self._access.recorder.read_packs(record)
        self._add(found.changes, found.contents)
        if record.state == "goes on":
            since = await self._compare(record, None)
            self.background += since.changes
            self.contents.update(since.contents)

    def _add(self, changes: Sequence[FileChange], contents: Mapping[str, bytes]) -> None:
        """Add changes; only the content before the first change of each file is needed."""
        for change in changes:
            if change.path not in self._seen and change.was in contents:
                self.contents[change.was] = contents[change.was]
            self._seen.add(change.path)
        self.changes += changes

    async def _compare(self, record: CommandRecord, later: CommandRecord | None) -> ReadChanges:
        try:
            return await self._access.recorder.compare_trees(record, later)
        except NotFound as error:
            self.reasons[str(error)] = None
            self.unrecorded.add(record.call)
            return ReadChanges([], {})


def _summarize(expansion: _Expansion, plan: RestorePlan, unclear: tuple[RestoreStep, ...]) -> FileRewind:
    return FileRewind(
        restored=tuple(sorted(step.path for step in plan.steps if step.was != NO_FILE)),
        removed=tuple(sorted(step.path for step in plan.steps if step.was == NO_FILE)),
        changed=plan.changed,
        unclear=tuple(sorted(step.path for step in unclear)),
        lost=tuple(sorted({*plan.lost, *expansion.lost})),
        unnamed=expansion.unnamed_count,
        ran=len(expansion.ran),
        commands=len(expansion.unrecorded),
        reasons=tuple(expansion.reasons),
    )
