"""TaskUpdate: change a task, what it waits for, or take it off the board."""

from typing import Any

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.core.types.content import clean
from vaka.core.types.errors import InvalidInput
from vaka.core.types.message import ToolResult
from vaka.tools.builtin.declare import declare
from vaka.tools.tasks.board import Change, status_of
from vaka.tools.tasks.keeping import load, save
from vaka.tools.tasks.shown import ID, NAMES, ONE_ID, full, task_id, told

_IDS = {"type": "array", "items": {"type": "string"}}
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "taskId": ID,
        "status": {"type": "string", "description": "pending, in_progress or completed."},
        "subject": {"type": "string", "minLength": 1, "maxLength": 1_000},
        "activeForm": {"type": "string", "maxLength": 1_000},
        "description": {"type": "string", "maxLength": 50_000},
        "owner": {"type": "string", "maxLength": 200, "description": "Who works on it; empty for nobody."},
        "blocks": {**_IDS, "description": "All tasks that wait for this one."},
        "blockedBy": {**_IDS, "description": "All tasks that this one waits for."},
        "addBlocks": {**_IDS, "description": "More tasks that wait for this one."},
        "addBlockedBy": {**_IDS, "description": "More tasks that this one waits for."},
        "delete": {"type": "boolean", "default": False, "description": "Take the task off the board."},
    },
    "anyOf": ONE_ID,
}
_DELETED = ("deleted", "delete")


class Wish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What shall be different."""

    status: str | None = None
    subject: str | None = None
    active_form: str | None = None
    description: str | None = None
    owner: str | None = None
    blocks: tuple[str, ...] | None = None
    blocked_by: tuple[str, ...] | None = None
    add_blocks: tuple[str, ...] = ()
    add_blocked_by: tuple[str, ...] = ()
    delete: bool = False

    @property
    def removes(self) -> bool:
        """Whether the task shall go."""
        return self.delete or (self.status or "").strip().lower() in _DELETED

    def change(self) -> Change:
        """Return it as a change of the board."""
        return Change(
            subject=_clean(self.subject and self.subject.strip()), active=_clean(self.active_form),
            description=_clean(self.description), owner=_clean(self.owner and self.owner.strip()),
            status=status_of(self.status) if self.status is not None else None,
            blocks=_ids(self.blocks), blocked_by=_ids(self.blocked_by),
            add_blocks=self.add_blocks, add_blocked_by=self.add_blocked_by,
        )  # fmt: skip


@declare("TaskUpdate", effect="idempotent", parameters=PARAMETERS)
async def task_update(context: ToolContext, **given: Any) -> ToolResult:
    """Change a task."""
    wish, id, kept = _wish(given), task_id(given), load(context)
    if wish.subject is not None and not wish.subject.strip():
        raise InvalidInput("a task needs a subject")
    changed = kept.board.delete(id) if wish.removes else kept.board.update(id, wish.change())
    revision = save(context, kept, changed.board)
    value = {
        "task": full(changed.task), "revision": revision, "unblocked": list(changed.unblocked),
        "affected": list(changed.affected), "deleted": wish.removes,
    }  # fmt: skip
    return told(context, value)


def _wish(given: dict[str, Any]) -> Wish:
    try:
        return msgspec.convert({name: value for name, value in given.items() if name not in NAMES}, Wish)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{error}; TaskUpdate takes {', '.join(PARAMETERS['properties'])}") from error


def _clean(text: str | None) -> str | None:
    return None if text is None else clean(text)


def _ids(ids: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if ids is None else tuple(dict.fromkeys(ids))
