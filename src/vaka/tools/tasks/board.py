"""The task board of a session, and how its log stores it."""

import hashlib
import heapq
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias, TypeVar, get_args

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import InvalidInput, NotFound
from vaka.tools.validate import suggest_name

TaskStatus: TypeAlias = Literal["pending", "in_progress", "completed", "blocked"]

STATUSES: tuple[TaskStatus, ...] = get_args(TaskStatus)

MAX_TASKS = 5_000
"""Tasks on a board."""

MAX_EDGES = 1_000
"""Tasks that one task waits for, or that wait for it."""

_RANK: dict[TaskStatus, int] = {"in_progress": 0, "blocked": 1, "pending": 2, "completed": 3}

_ALIASES: dict[str, TaskStatus] = {"done": "completed", "complete": "completed"}


class Task(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something to be done."""

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


class TaskChange(msgspec.Struct, frozen=True, kw_only=True):
    """What shall be different about a task; ``None`` leaves a thing as it is."""

    subject: str | None = None
    active: str | None = None
    description: str | None = None
    status: TaskStatus | None = None
    owner: str | None = None
    blocks: tuple[str, ...] | None = None
    blocked_by: tuple[str, ...] | None = None
    add_blocks: tuple[str, ...] = ()
    add_blocked_by: tuple[str, ...] = ()


class BoardUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """A board after a change."""

    board: "Board"
    task: Task
    unblocked: tuple[str, ...] = ()
    """Tasks that waited before and do not wait any more."""
    affected: tuple[str, ...] = ()
    """Other tasks that are not as they were."""


class TaskRow(msgspec.Struct, frozen=True):
    """A task in its place: behind all it waits for."""

    task: Task
    depth: int
    """How many tasks in a row must be done before it."""


def parse_status(text: str) -> TaskStatus:
    """Return the status a word stands for. Raises ``InvalidInput`` for other words."""
    word = text.strip().lower().replace("-", "_").replace(" ", "_")
    found = _ALIASES.get(word, word)
    for status in STATUSES:
        if found == status:
            return status
    raise InvalidInput(f"status {text!r} must be one of {', '.join(STATUSES)}")


class Board:
    """The tasks of a session in the order they were made."""

    def __init__(self, tasks: Mapping[str, Task] | None = None) -> None:
        self.tasks: dict[str, Task] = dict(tasks or {})

    def get(self, id: str) -> Task:
        """Return a task. Raises ``NotFound``."""
        if id not in self.tasks:
            raise NotFound(f"there is no task {id!r}{suggest_name(id, self.tasks)}")
        return self.tasks[id]

    def create(self, task: Task) -> "Board":
        """Add a task that waits for nothing."""
        if len(self.tasks) >= MAX_TASKS:
            raise InvalidInput(f"the board has {MAX_TASKS} tasks, which is all it can hold; delete some first")
        return Board({**self.tasks, task.id: task})

    def update(self, id: str, change: TaskChange) -> BoardUpdate:
        """Change a task and whatever depends on that, or nothing at all. Raises ``NotFound`` or ``InvalidInput``."""
        before = self.get(id)
        made = Board(self.tasks)
        blocks = _merge_ids(before.blocks if change.blocks is None else change.blocks, change.add_blocks)
        waits = _merge_ids(before.blocked_by if change.blocked_by is None else change.blocked_by, change.add_blocked_by)
        made._set_edges(id, blocks, waits)
        made._set_texts(id, change)
        made._update_blocked()
        if change.status is not None:
            made._set_status(id, change.status)
            made._update_blocked()
        return self._compare_with(made, made.tasks[id])

    def delete(self, id: str) -> BoardUpdate:
        """Take a task off the board; nobody waits for it any more."""
        gone = self.get(id)
        made = Board(self.tasks)
        made._set_edges(id, (), ())
        del made.tasks[id]
        made._update_blocked()
        return self._compare_with(made, gone)

    def ordered_rows(self) -> list[TaskRow]:
        """Return all tasks, each behind what it waits for; among equals what is being done comes first."""
        depths: dict[str, int] = {}
        left = {id: len(task.blocked_by) for id, task in self.tasks.items()}
        ready = [_sort_key(task) for task in self.tasks.values() if not task.blocked_by]
        heapq.heapify(ready)
        rows: list[TaskRow] = []
        while ready:
            task = self.tasks[heapq.heappop(ready)[-1]]
            depths[task.id] = max((depths[other] + 1 for other in task.blocked_by), default=0)
            rows.append(TaskRow(task, depths[task.id]))
            for other in task.blocks:
                left[other] -= 1
                if not left[other]:
                    heapq.heappush(ready, _sort_key(self.tasks[other]))
        return rows

    def _set_edges(self, id: str, blocks: tuple[str, ...], blocked_by: tuple[str, ...]) -> None:
        """Let a task have these neighbours and no others, on both sides."""
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
        """Raise ``InvalidInput`` when a task would wait for itself over others."""
        came: dict[str, str] = {}
        waiting = list(self.tasks[id].blocks)
        came.update(dict.fromkeys(waiting, id))
        while waiting:
            at = waiting.pop()
            if at == id:
                way = [id]
                while (step := came[way[-1]]) != id:
                    way.append(step)
                said = " -> ".join([id, *reversed(way)])
                raise InvalidInput(f"the tasks would wait for each other in a circle: {said}")
            for other in self.tasks[at].blocks:
                if other not in came:
                    came[other] = at
                    waiting.append(other)

    def _set_texts(self, id: str, change: TaskChange) -> None:
        fields = {name: getattr(change, name) for name in ("subject", "active", "description", "owner")}
        self._edit_task(id, **{name: value for name, value in fields.items() if value is not None})

    def _set_status(self, id: str, status: TaskStatus) -> None:
        task = self.tasks[id]
        if status == "blocked":
            raise InvalidInput("a task is blocked by what it waits for; give blockedBy, not the status")
        open = [other for other in task.blocked_by if self.tasks[other].status != "completed"]
        if open and status != "pending":
            raise InvalidInput(f"task {id!r} cannot be {status}: it waits for {', '.join(open)}")
        self._edit_task(id, status=status)

    def _update_blocked(self) -> None:
        """Let tasks be blocked that wait for something open, and the others not."""
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
"""Bytes of one task."""

IDS_PER_PAGE = 64
"""Ids in one value, so that a new task costs the same however many there are."""

_HEAD_KEY = "tasks"

_T = TypeVar("_T")


class BoardHead(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of the board without looking at it."""

    revision: int = 0
    made: int = 0
    """How many tasks there have ever been."""


class StoredBoard(msgspec.Struct, frozen=True):
    """The board as the log has it."""

    head: BoardHead
    board: Board


def task_id_for(context: ToolContext) -> str:
    """Return the id of the task that a call makes: the same when the call runs again."""
    return hashlib.sha256(context.key.encode()).hexdigest()[:32]


def load_board(context: ToolContext) -> StoredBoard:
    """Return the board of the session."""
    head = _read_value(context, _HEAD_KEY, BoardHead) or BoardHead()
    tasks: dict[str, Task] = {}
    for shelf in range((head.made + IDS_PER_PAGE - 1) // IDS_PER_PAGE):
        for id in _read_value(context, _page_key(shelf), list[str]) or []:
            task = _read_value(context, _task_key(id), Task)
            if task is not None:
                tasks[id] = task
    return StoredBoard(head, Board(tasks))


def save_board(context: ToolContext, stored: StoredBoard, board: Board) -> int:
    """Keep a changed board, all of the change or none; return its revision."""
    before = stored.board.tasks
    changed = {id: task for id, task in board.tasks.items() if before.get(id) != task}
    gone = [id for id in before if id not in board.tasks]
    if not changed and not gone:
        return stored.head.revision
    for id, task in changed.items():
        if (size := len(msgspec.json.encode(task))) > MAX_TASK_BYTES:
            raise InvalidInput(
                f"task {id!r} has {size} bytes, at most {MAX_TASK_BYTES} are kept; put long texts into files"
            )
    made = stored.head.made
    for id, task in changed.items():
        if id not in before:
            _append_id(context, made, id)
            made += 1
        context.set_state(_task_key(id), msgspec.to_builtins(task))
    for id in gone:
        _remove_task(context, stored.head.made, id)
    head = BoardHead(stored.head.revision + 1, made)
    context.set_state(_HEAD_KEY, msgspec.to_builtins(head))
    return head.revision


def _append_id(context: ToolContext, number: int, id: str) -> None:
    key = _page_key(number // IDS_PER_PAGE)
    context.set_state(key, [*(_read_value(context, key, list[str]) or []), id])


def _remove_task(context: ToolContext, made: int, id: str) -> None:
    context.set_state(_task_key(id), None)
    for shelf in range((made + IDS_PER_PAGE - 1) // IDS_PER_PAGE):
        ids = _read_value(context, _page_key(shelf), list[str]) or []
        if id in ids:
            context.set_state(_page_key(shelf), [other for other in ids if other != id] or None)


def _read_value(context: ToolContext, key: str, kind: "type[_T]") -> "_T | None":
    value = context.get_state(key)
    try:
        return None if value is None else msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the task board cannot be read: {key!r} was changed by something else ({error})") from error


def _task_key(id: str) -> str:
    return f"task.{id}"


def _page_key(number: int) -> str:
    return f"tasks.{number}"
