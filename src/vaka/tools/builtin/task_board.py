"""The task board, and its storage in the state of the session or of a store that sessions share."""

import hashlib
import heapq
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Literal, TypeAlias, TypeVar, get_args

import msgspec

from vaka.core.ports.tool import StateValues, ToolContext
from vaka.core.types.errors import InvalidInput, NotFound
from vaka.tools.validate import suggest_name

TaskStatus: TypeAlias = Literal["pending", "in_progress", "completed", "blocked"]

STATUSES: tuple[TaskStatus, ...] = get_args(TaskStatus)

MAX_TASKS = 5_000
"""The largest number of tasks on a board."""

MAX_EDGES = 1_000
"""The largest number of tasks that one task waits for, or that wait for it."""

_RANK: dict[TaskStatus, int] = {"in_progress": 0, "blocked": 1, "pending": 2, "completed": 3}

_ALIASES: dict[str, TaskStatus] = {"done": "completed", "complete": "completed"}


class Task(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task on the board."""

    id: str
    subject: str
    active: str = msgspec.field(name="activeForm", default="")
    description: str = ""
    status: TaskStatus = "pending"
    owner: str = ""
    blocks: tuple[str, ...] = ()
    """Tasks that wait for this one."""
    blocked_by: tuple[str, ...] = msgspec.field(name="blockedBy", default=())
    """Tasks that this one waits for."""


class TaskChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A change of a task; ``None`` leaves a field unchanged."""

    subject: str | None = None
    active: str | None = msgspec.field(name="activeForm", default=None)
    description: str | None = None
    status: TaskStatus | None = None
    owner: str | None = None
    blocks: tuple[str, ...] | None = None
    blocked_by: tuple[str, ...] | None = None
    add_blocks: tuple[str, ...] = ()
    add_blocked_by: tuple[str, ...] = ()


class BoardUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """The board after a change, with the tasks the change affected."""

    board: "Board"
    task: Task
    unblocked: tuple[str, ...] = ()
    """Tasks that were blocked before and are not any more."""
    affected: tuple[str, ...] = ()
    """Other tasks that changed."""


class BoardHead(msgspec.Struct, frozen=True, omit_defaults=True):
    """The revision and size of a stored board."""

    revision: int = 0
    made: int = 0
    """How many tasks were ever created."""


def parse_status(text: str) -> TaskStatus:
    """Return the status named by a word, in any case and with aliases. Raises ``InvalidInput`` for other words."""
    word = text.strip().lower().replace("-", "_").replace(" ", "_")
    word = _ALIASES.get(word, word)
    for status in STATUSES:
        if word == status:
            return status
    raise InvalidInput(f"status {text!r} must be one of {', '.join(STATUSES)}")


class Board:
    """The tasks of a session in the order of their creation; a change returns a new board."""

    def __init__(self, tasks: Mapping[str, Task] | None = None, head: BoardHead | None = None) -> None:
        self.tasks: dict[str, Task] = dict(tasks or {})
        self.head = head or BoardHead()

    def get(self, id: str) -> Task:
        """Return a task. Raises ``NotFound`` for an unknown id."""
        if id not in self.tasks:
            raise NotFound(f"there is no task {id!r}{suggest_name(id, self.tasks)}")
        return self.tasks[id]

    def create(self, task: Task) -> "Board":
        """Add a task that waits for nothing."""
        if len(self.tasks) >= MAX_TASKS:
            raise InvalidInput(f"the board has {MAX_TASKS} tasks, which is all it can hold; delete some first")
        return Board({**self.tasks, task.id: task})

    def update(self, id: str, change: TaskChange) -> BoardUpdate:
        """Change a task and the tasks that depend on it, or nothing. Raises ``NotFound`` or ``InvalidInput``."""
        before = self.get(id)
        board = Board(self.tasks)
        blocks = _merge_ids(before.blocks if change.blocks is None else change.blocks, change.add_blocks)
        waits = _merge_ids(before.blocked_by if change.blocked_by is None else change.blocked_by, change.add_blocked_by)
        board._set_edges(id, blocks, waits)
        texts = {name: getattr(change, name) for name in ("subject", "active", "description", "owner")}
        board._edit_task(id, **{name: text for name, text in texts.items() if text is not None})
        board._update_blocked()
        if change.status is not None:
            board._set_status(id, change.status)
            board._update_blocked()
        return self._compare_with(board, board.tasks[id])

    def delete(self, id: str) -> BoardUpdate:
        """Remove a task; tasks that waited for it no longer do. Raises ``NotFound``."""
        task = self.get(id)
        board = Board(self.tasks)
        board._set_edges(id, (), ())
        del board.tasks[id]
        board._update_blocked()
        return self._compare_with(board, task)

    def ordered_rows(self) -> list[tuple[Task, int]]:
        """Return all tasks, each behind the tasks it waits for; among equals those in progress come first.

        The number is the length of the longest chain of tasks that must be done before it.
        """
        depths: dict[str, int] = {}
        left = {id: len(task.blocked_by) for id, task in self.tasks.items()}
        ready = [_sort_key(task) for task in self.tasks.values() if not task.blocked_by]
        heapq.heapify(ready)
        rows: list[tuple[Task, int]] = []
        while ready:
            task = self.tasks[heapq.heappop(ready)[-1]]
            depths[task.id] = max((depths[other] + 1 for other in task.blocked_by), default=0)
            rows.append((task, depths[task.id]))
            for other in task.blocks:
                left[other] -= 1
                if not left[other]:
                    heapq.heappush(ready, _sort_key(self.tasks[other]))
        return rows

    def _set_edges(self, id: str, blocks: tuple[str, ...], blocked_by: tuple[str, ...]) -> None:
        """Set the tasks before and behind a task, and the opposite edges of those tasks."""
        before = self.tasks[id]
        for other in (*blocks, *blocked_by):
            if other == id:
                raise InvalidInput(f"task {id!r} cannot wait for itself")
            self.get(other)
        self.tasks[id] = msgspec.structs.replace(before, blocks=blocks, blocked_by=blocked_by)
        for other in before.blocks:
            self._edit_task(other, blocked_by=_remove_id(self.tasks[other].blocked_by, id))
        for other in before.blocked_by:
            self._edit_task(other, blocks=_remove_id(self.tasks[other].blocks, id))
        for other in blocks:
            self._edit_task(other, blocked_by=_merge_ids(self.tasks[other].blocked_by, (id,)))
        for other in blocked_by:
            self._edit_task(other, blocks=_merge_ids(self.tasks[other].blocks, (id,)))
        for other in (id, *blocks, *blocked_by):
            task = self.tasks[other]
            if len(task.blocks) > MAX_EDGES or len(task.blocked_by) > MAX_EDGES:
                raise InvalidInput(f"task {other!r} has more than {MAX_EDGES} others before or behind it")
        self._check_cycle(id)

    def _check_cycle(self, id: str) -> None:
        """Raise ``InvalidInput`` when a task waits for itself through others."""
        pending = list(self.tasks[id].blocks)
        previous = dict.fromkeys(pending, id)
        while pending:
            at = pending.pop()
            if at == id:
                path = [id]
                while (step := previous[path[-1]]) != id:
                    path.append(step)
                cycle = " -> ".join([id, *reversed(path)])
                raise InvalidInput(f"the tasks would wait for each other in a circle: {cycle}")
            for other in self.tasks[at].blocks:
                if other not in previous:
                    previous[other] = at
                    pending.append(other)

    def _set_status(self, id: str, status: TaskStatus) -> None:
        task = self.tasks[id]
        if status == "blocked":
            raise InvalidInput("a task is blocked by the tasks it waits for; set blockedBy, not the status")
        open = [other for other in task.blocked_by if self.tasks[other].status != "completed"]
        if open and status != "pending":
            raise InvalidInput(f"task {id!r} cannot be {status}: it waits for {', '.join(open)}")
        self._edit_task(id, status=status)

    def _update_blocked(self) -> None:
        """Set the status ``blocked`` of tasks that wait for an open task, and reset it for the others."""
        for id, task in self.tasks.items():
            if task.status == "completed":
                continue
            waits = any(self.tasks[other].status != "completed" for other in task.blocked_by)
            status: TaskStatus = "blocked" if waits else "pending" if task.status == "blocked" else task.status
            if status != task.status:
                self._edit_task(id, status=status)

    def _edit_task(self, id: str, **fields: object) -> None:
        task = self.tasks[id]
        if any(getattr(task, name) != value for name, value in fields.items()):
            self.tasks[id] = msgspec.structs.replace(task, **fields)

    def _compare_with(self, updated: "Board", task: Task) -> BoardUpdate:
        others = [id for id, other in updated.tasks.items() if id != task.id and other != self.tasks[id]]
        free = [id for id in others if self.tasks[id].status == "blocked" and updated.tasks[id].status != "blocked"]
        own = self.tasks[task.id].status == "blocked" and updated.tasks.get(task.id, task).status != "blocked"
        unblocked = (*((task.id,) if own and task.id in updated.tasks else ()), *free)
        return BoardUpdate(board=updated, task=task, unblocked=unblocked, affected=tuple(others))


def _sort_key(task: Task) -> tuple[int, str, str]:
    return (_RANK[task.status], task.owner, task.id)


def _merge_ids(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _remove_id(ids: tuple[str, ...], removed: str) -> tuple[str, ...]:
    return tuple(id for id in ids if id != removed)


MAX_TASK_BYTES = 200 * 1024
"""The largest size of one task."""

IDS_PER_PAGE = 64
"""Ids in one state value, so that the cost of a new task does not grow with the board."""

_HEAD_KEY = "tasks"

_T = TypeVar("_T")


def task_id_for(context: ToolContext, subject: str) -> str:
    """Return the id of the task that a call creates: the same when the call runs again."""
    # Sessions that share a board may be in several stores and have equal ids.
    key = context.key if context.world.tasks is None else f"{context.key}\n{subject}"
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def open_board(context: ToolContext) -> AbstractAsyncContextManager[StateValues]:
    """Return the state with the board: of the runtime's task store, else of the session."""
    shared = context.world.tasks
    return shared.change() if shared is not None else nullcontext(context.state)


def load_board(state: StateValues) -> Board:
    head = _read_value(state, _HEAD_KEY, BoardHead) or BoardHead()
    tasks: dict[str, Task] = {}
    for page in range((head.made + IDS_PER_PAGE - 1) // IDS_PER_PAGE):
        for id in _read_value(state, f"tasks.{page}", list[str]) or []:
            task = _read_value(state, f"task.{id}", Task)
            if task is not None:
                tasks[id] = task
    return Board(tasks, head)


def save_board(state: StateValues, stored: Board, board: Board) -> int:
    """Save a changed board, all of it or nothing, and return its revision."""
    before = stored.tasks
    changed = {id: task for id, task in board.tasks.items() if before.get(id) != task}
    removed = [id for id in before if id not in board.tasks]
    if not changed and not removed:
        return stored.head.revision
    for id, task in changed.items():
        if (size := len(msgspec.json.encode(task))) > MAX_TASK_BYTES:
            raise InvalidInput(
                f"task {id!r} has {size} bytes, at most {MAX_TASK_BYTES} are stored; put long texts into files"
            )
    made = stored.head.made
    for id, task in changed.items():
        if id not in before:
            key = f"tasks.{made // IDS_PER_PAGE}"
            state.set(key, [*(_read_value(state, key, list[str]) or []), id])
            made += 1
        state.set(f"task.{id}", msgspec.to_builtins(task))
    for id in removed:
        _remove_task(state, stored.head.made, id)
    head = BoardHead(stored.head.revision + 1, made)
    state.set(_HEAD_KEY, msgspec.to_builtins(head))
    return head.revision


def _remove_task(state: StateValues, made: int, id: str) -> None:
    state.set(f"task.{id}", None)
    for page in range((made + IDS_PER_PAGE - 1) // IDS_PER_PAGE):
        ids = _read_value(state, f"tasks.{page}", list[str]) or []
        if id in ids:
            state.set(f"tasks.{page}", [other for other in ids if other != id] or None)


def _read_value(state: StateValues, key: str, kind: "type[_T]") -> "_T | None":
    value = state.get(key)
    try:
        return None if value is None else msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the task board cannot be read: {key!r} was changed by something else ({error})") from error
