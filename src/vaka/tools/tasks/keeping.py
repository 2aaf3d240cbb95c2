"""The board in the session's log: a value for each task, and small ones that say in which order they are."""

import hashlib
from typing import TypeVar

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import InvalidInput
from vaka.tools.tasks.board import Board, Task

LARGEST = 200 * 1024
"""Bytes of one task."""
SHELF = 64
"""Ids in one value, so that a new task costs the same however many there are."""
_HEAD = "tasks"
_T = TypeVar("_T")


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of the board without looking at it."""

    revision: int = 0
    made: int = 0
    """How many tasks there have ever been."""


class Kept(msgspec.Struct, frozen=True):
    """The board as the log has it."""

    head: Head
    board: Board


def id_for(context: ToolContext) -> str:
    """Return the id of the task that a call makes: the same when the call runs again."""
    return hashlib.sha256(context.key.encode()).hexdigest()[:32]


def load(context: ToolContext) -> Kept:
    """Return the board of the session."""
    head = _read(context, _HEAD, Head) or Head()
    tasks: dict[str, Task] = {}
    for shelf in range((head.made + SHELF - 1) // SHELF):
        for id in _read(context, _shelf(shelf), list[str]) or []:
            task = _read(context, _key(id), Task)
            if task is not None:
                tasks[id] = task
    return Kept(head, Board(tasks))


def save(context: ToolContext, kept: Kept, board: Board) -> int:
    """Keep a changed board, all of the change or none; return its revision."""
    before = kept.board.tasks
    changed = {id: task for id, task in board.tasks.items() if before.get(id) != task}
    gone = [id for id in before if id not in board.tasks]
    if not changed and not gone:
        return kept.head.revision
    for id, task in changed.items():
        if (size := len(msgspec.json.encode(task))) > LARGEST:
            raise InvalidInput(f"task {id!r} has {size} bytes, at most {LARGEST} are kept; put long texts into files")
    made = kept.head.made
    for id, task in changed.items():
        if id not in before:
            _add(context, made, id)
            made += 1
        context.keep(_key(id), msgspec.to_builtins(task))
    for id in gone:
        _remove(context, kept.head.made, id)
    head = Head(kept.head.revision + 1, made)
    context.keep(_HEAD, msgspec.to_builtins(head))
    return head.revision


def _add(context: ToolContext, number: int, id: str) -> None:
    key = _shelf(number // SHELF)
    context.keep(key, [*(_read(context, key, list[str]) or []), id])


def _remove(context: ToolContext, made: int, id: str) -> None:
    context.keep(_key(id), None)
    for shelf in range((made + SHELF - 1) // SHELF):
        ids = _read(context, _shelf(shelf), list[str]) or []
        if id in ids:
            context.keep(_shelf(shelf), [other for other in ids if other != id] or None)


def _read(context: ToolContext, key: str, kind: "type[_T]") -> "_T | None":
    value = context.kept(key)
    try:
        return None if value is None else msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the task board cannot be read: {key!r} was changed by something else ({error})") from error


def _key(id: str) -> str:
    return f"task.{id}"


def _shelf(number: int) -> str:
    return f"tasks.{number}"
