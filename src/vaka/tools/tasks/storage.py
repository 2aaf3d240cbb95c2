"""The task board in the session's state: one value per task, and pages of ids that keep their order."""

import hashlib
from typing import TypeVar

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import InvalidInput
from vaka.tools.tasks.board import Board, Task

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
