"""The task tools: TaskCreate, TaskGet, TaskList, TaskUpdate and TodoWrite."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
from msgspec import Meta

from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import JSON
from vaka.core.types.message import ToolResult, replace_surrogates
from vaka.core.types.traits import ToolTraits
from vaka.tools.builtin import task_board
from vaka.tools.builtin.builtin_tool import builtin_tool, text_result
from vaka.tools.builtin.task_board import Board, Task, TaskChange

STATE_KEY = "todos"
MAX_TODOS = 200
_STATUS_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


class Todo(TypedDict):
    """An item."""

    content: Annotated[str, Meta(min_length=1, max_length=500)]
    status: Literal["pending", "in_progress", "completed"]
    activeForm: NotRequired[Annotated[str, "Such as: Running the tests.", Meta(max_length=500)]]


_ID_ARGUMENTS = ("taskId", "task_id", "id")
_NOTE_TRAITS = ToolTraits(session=True)


@builtin_tool("TodoWrite", effect="idempotent", traits=_NOTE_TRAITS)
async def todo_write(context: ToolContext, todos: Annotated[list[Todo], Meta(max_length=MAX_TODOS)]) -> ToolResult:
    """Replace the list."""
    current = [_clean_item(todo) for todo in todos]
    active = [item["content"] for item in current if item["status"] == "in_progress"]
    if len(active) > 1:
        raise InvalidInput(f"one item can be in_progress, not {len(active)}: {', '.join(map(repr, active))}")
    key = "/".join((STATE_KEY, *context.path))  # a child agent has a list of its own
    previous: JSON = context.state.get(key) or []
    if current != previous:
        context.state.set(key, current or None)
    text = "\n".join(f"{_STATUS_MARKS[item['status']]} {item['content']}" for item in current) or "The list is empty."
    return text_result(context, text, {"todos": current, "previous": previous})


def _clean_item(todo: Todo) -> dict[str, Any]:
    content = replace_surrogates(todo["content"].strip())
    if not content:
        raise InvalidInput("an item needs a content that is not blank")
    active = replace_surrogates(todo.get("activeForm") or content)
    return {"content": content, "status": todo["status"], "activeForm": active}


ID_NAMES = ("taskId", "task_id", "id")

ID_SCHEMA: dict[str, Any] = {"type": "string"}

ANY_ID_REQUIRED = [{"required": [name]} for name in ID_NAMES]


def read_task_id(given: dict[str, Any]) -> str:
    """Return the id in the arguments. Raises ``InvalidInput`` when there is none or more than one."""
    ids = {str(given[name]) for name in ID_NAMES if given.get(name)}
    if len(ids) != 1:
        raise InvalidInput("one task must be named, with taskId")
    return ids.pop()


def task_fields(task: Task, *, brief: bool = False) -> dict[str, Any]:
    return {
        "id": task.id,
        "subject": task.subject,
        "activeForm": task.active,
        **({} if brief else {"description": task.description}),
        "status": task.status,
        "owner": task.owner,
        "blocks": list(task.blocks),
        "blockedBy": list(task.blocked_by),
    }


def task_refs(board: Board, ids: tuple[str, ...]) -> list[dict[str, str]]:
    """Return the fields shown of tasks that another task refers to."""
    tasks = [board.tasks[id] for id in ids]
    return [{"id": one.id, "subject": one.subject, "status": one.status, "owner": one.owner} for one in tasks]


def json_result(context: ToolContext, value: dict[str, Any]) -> ToolResult:
    """Return a result that a model reads as JSON."""
    return text_result(context, msgspec.json.encode(value).decode(), value)


@builtin_tool("TaskCreate", effect="idempotent", traits=_NOTE_TRAITS)
async def task_create(
    context: ToolContext,
    subject: Annotated[str, "Such as: Run the tests.", Meta(min_length=1, max_length=1_000)],
    activeForm: Annotated[str, "Such as: Running the tests.", Meta(min_length=1, max_length=1_000)],  # noqa: N803  # the model's name
    description: Annotated[str, Meta(max_length=50_000)] = "",
) -> ToolResult:
    """Make a task."""
    if not subject.strip():
        raise InvalidInput("a task needs a subject")
    subject = replace_surrogates(subject.strip())
    task = Task(
        id=task_board.task_id_for(context, subject),
        subject=subject,
        active=replace_surrogates(activeForm),
        description=replace_surrogates(description),
    )
    async with task_board.open_board(context) as state:
        stored = task_board.load_board(state)
        if task.id not in stored.tasks:
            task_board.save_board(state, stored, stored.create(task))
    return json_result(context, {"taskId": task.id})


GET_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"taskId": ID_SCHEMA}, "anyOf": ANY_ID_REQUIRED}


@builtin_tool(
    "TaskGet",
    effect="read",
    parameters=GET_PARAMETERS,
    traits=ToolTraits(session=True, summary=_ID_ARGUMENTS, rule_arguments=_ID_ARGUMENTS),
)
async def task_get(context: ToolContext, **given: Any) -> ToolResult:
    """Return a task."""
    async with task_board.open_board(context) as state:
        board = task_board.load_board(state)
    task = board.get(read_task_id(given))
    refs = {"blocks": task_refs(board, task.blocks), "blockedBy": task_refs(board, task.blocked_by)}
    return json_result(context, {**task_fields(task), **refs})


_MAX_INDENT = 10
"""Deeper tasks are indented no further."""


@builtin_tool("TaskList", effect="read", traits=_NOTE_TRAITS)
async def task_list(
    context: ToolContext,
    status: Annotated[str, "Such as pending or blocked."] = "",
    owner: str = "",
) -> ToolResult:
    """Return the tasks."""
    wanted = task_board.parse_status(status) if status.strip() else None
    async with task_board.open_board(context) as state:
        stored = task_board.load_board(state)
    rows = [
        (task, depth)
        for task, depth in stored.ordered_rows()
        if (wanted is None or task.status == wanted)
        and (not owner.strip() or task.owner.casefold() == owner.strip().casefold())
    ]
    counts = {name: sum(task.status == name for task, _ in rows) for name in task_board.STATUSES}
    value: dict[str, Any] = {
        "tasks": [{**task_fields(task, brief=True), "depth": depth} for task, depth in rows],
        "counts": counts,
        "total": len(rows),
        "revision": stored.head.revision,
    }
    totals = ", ".join(f"{count} {name}" for name, count in counts.items())
    return text_result(
        context, "\n".join([f"{len(rows)} tasks: {totals}", *(_format_row(task, depth) for task, depth in rows)]), value
    )


def _format_row(task: Task, depth: int) -> str:
    owner = f" ({task.owner})" if task.owner else ""
    waits = f" <- {', '.join(task.blocked_by)}" if task.status == "blocked" else ""
    return f"{'  ' * min(depth, _MAX_INDENT)}- [{task.status}] {task.subject}{owner} {task.id}{waits}"


_ID_LIST = {"type": "array", "items": {"type": "string"}}

UPDATE_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "taskId": ID_SCHEMA,
        "status": {"type": "string", "description": "pending, in_progress or completed."},
        "subject": {"type": "string", "minLength": 1, "maxLength": 1_000},
        "activeForm": {"type": "string", "maxLength": 1_000},
        "description": {"type": "string", "maxLength": 50_000},
        "owner": {
            "type": "string",
            "maxLength": 200,
            "description": "Who works on it; empty: no owner.",
        },
        "blocks": _ID_LIST,
        "blockedBy": _ID_LIST,
        "addBlocks": _ID_LIST,
        "addBlockedBy": _ID_LIST,
        "delete": {"type": "boolean", "default": False, "description": "Remove the task."},
    },
    "anyOf": ANY_ID_REQUIRED,
}

_DELETE_STATUSES = ("deleted", "delete")


@builtin_tool(
    "TaskUpdate",
    effect="idempotent",
    parameters=UPDATE_PARAMETERS,
    traits=ToolTraits(
        session=True,
        summary=_ID_ARGUMENTS,
        rule_arguments=(*_ID_ARGUMENTS, "status", "owner", "delete"),
    ),
)
async def task_update(context: ToolContext, **given: Any) -> ToolResult:
    """Change a task."""
    (change, deleted), id = _parse_change(given), read_task_id(given)
    async with task_board.open_board(context) as state:
        stored = task_board.load_board(state)
        update = stored.delete(id) if deleted else stored.update(id, change)
        revision = task_board.save_board(state, stored, update.board)
    value = {
        "task": task_fields(update.task),
        "revision": revision,
        "unblocked": list(update.unblocked),
        "affected": list(update.affected),
        "deleted": deleted,
    }
    return json_result(context, value)


def _parse_change(given: dict[str, Any]) -> tuple[TaskChange, bool]:
    """Return the change in the arguments, and whether it deletes the task. Raises ``InvalidInput``."""
    fields = {name: value for name, value in given.items() if name not in (*ID_NAMES, "delete")}
    fields |= {name: replace_surrogates(value) for name, value in fields.items() if isinstance(value, str)}
    fields |= {name: fields[name].strip() for name in ("subject", "owner") if isinstance(fields.get(name), str)}
    status = fields.pop("status", None)
    deleted = given.get("delete") is True or str(status).strip().lower() in _DELETE_STATUSES
    if status is not None and not deleted:
        fields["status"] = task_board.parse_status(str(status))
    if fields.get("subject") == "":
        raise InvalidInput("a task needs a subject")
    try:
        return msgspec.convert(fields, TaskChange), deleted
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{error}; TaskUpdate takes {', '.join(UPDATE_PARAMETERS['properties'])}") from error
