"""What a session's log knows of commands in the background: they end with vaka, but that they were is not lost."""

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import NotFound
from vaka.tools.builtin.shell import Shell, Status
from vaka.tools.builtin.shells import PREFIX, shells_of

KEY = "shell.tasks"
MOST = 100
"""Commands that are remembered; the oldest are forgotten first."""
_SHOWN = 200


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command as it was when the session last looked at it."""

    command: str
    status: Status = "running"
    exit_code: int | None = None
    read: int = 0
    """Bytes of its output the session has seen."""


class Notes(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of them."""

    number: int = 0
    tasks: dict[str, Note] = {}


def notes(context: ToolContext) -> Notes:
    """Return what the log knows."""
    try:
        return msgspec.convert(context.kept(KEY) or {}, Notes)
    except msgspec.ValidationError:
        return Notes()  # somebody else's value


def note(context: ToolContext, shell: Shell, read: int | None = None) -> None:
    """Put down how a command is now, and how much of its output was seen if that is more than before."""
    known = notes(context)
    before = known.tasks.get(shell.id)
    seen = read if read is not None else before.read if before else 0
    fresh = Note(shell.command[:_SHOWN], shell.status, shell.code, seen)
    if fresh == before:
        return
    tasks = {**known.tasks, shell.id: fresh}
    for old in list(tasks)[: max(len(tasks) - MOST, 0)]:
        del tasks[old]
    number = shell.id.removeprefix(PREFIX)
    last = max(known.number, int(number)) if number.isdecimal() and number != shell.id else known.number
    context.keep(KEY, msgspec.to_builtins(Notes(last, tasks)))


class Gone(msgspec.Struct, frozen=True):
    """A command that is known to the log alone."""

    id: str
    note: Note

    @property
    def status(self) -> str:
        """What is known of its end: one that was running has an end nobody saw."""
        return "unknown" if self.note.status == "running" else self.note.status

    @property
    def text(self) -> str:
        """What to say of it."""
        if self.note.status == "running":
            return f"{self.id} was running when vaka stopped; its outcome is unknown, and it does not run any more"
        code = "" if self.note.exit_code is None else f" with exit code {self.note.exit_code}"
        return f"{self.id} {_ENDED[self.note.status]}{code}; its output is not at hand any more"


_ENDED: dict[str, str] = {"completed": "ended", "failed": "ended", "killed": "was killed, it ended"}


def find(context: ToolContext, id: str) -> Shell | Gone:
    """Return a command of this session. Raises ``NotFound`` for one there never was."""
    shells = shells_of(context)
    shell = shells.find(context.session, id)
    if shell is not None:
        return shell
    known, past = notes(context).tasks, shells.past(context.session, id)
    if past is not None:
        return Gone(id, Note(known[id].command if id in known else "", past.status, past.code))
    if id in known:
        return Gone(id, known[id])
    names = [other.id for other in shells.all(context.session)]
    there = f"there are {', '.join(names)}" if names else "nothing was started in the background"
    raise NotFound(f"there is no task {id!r}; {there}")
