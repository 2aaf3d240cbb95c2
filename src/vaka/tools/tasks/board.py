"""Tasks and what they wait for. A board is a value: a change makes a new one, or an error and none."""

import heapq
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias, get_args

import msgspec

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
