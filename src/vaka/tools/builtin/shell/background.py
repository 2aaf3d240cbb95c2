"""Background commands: their records in the session's state, and the tools BashOutput, BashStatus and KillTask."""

from collections.abc import Iterator
from typing import Any

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import InvalidInput, NotFound
from vaka.core.types.message import ToolResult
from vaka.core.types.traits import ToolTraits
from vaka.tools.builtin.builtin_tool import builtin_tool, text_result
from vaka.tools.builtin.shell.network_gate import describe_refusals, refusal_values
from vaka.tools.builtin.shell.output import filter_lines
from vaka.tools.builtin.shell.removed_paths import describe_removed
from vaka.tools.builtin.shell.supervisor import TASK_ID_PREFIX, ShellProcess, ShellStatus, supervisor_of

STATE_KEY = "shell.tasks"
MAX_RECORDS = 100
"""Records kept; the oldest are dropped first."""
_MAX_COMMAND_CHARACTERS = 200


class TaskRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command as of the last call about it."""

    command: str
    status: ShellStatus = "running"
    exit_code: int | None = None
    read: int = 0
    """Bytes of its output that were read."""


class TaskRecords(msgspec.Struct, frozen=True, omit_defaults=True):
    """The records of a session and the highest number in an id."""

    number: int = 0
    tasks: dict[str, TaskRecord] = {}


def load_records(context: ToolContext) -> TaskRecords:
    """Return the records in the session's state."""
    try:
        return msgspec.convert(context.state.get(STATE_KEY) or {}, TaskRecords)
    except msgspec.ValidationError:
        return TaskRecords()  # not a value of this module


def save_record(context: ToolContext, shell: ShellProcess, bytes_read: int | None = None) -> None:
    """Record the status of a command, and how much of its output was read if given."""
    known = load_records(context)
    before = known.tasks.get(shell.id)
    read = bytes_read if bytes_read is not None else before.read if before else 0
    record = TaskRecord(shell.command[:_MAX_COMMAND_CHARACTERS], shell.status, shell.exit_code, read)
    if record == before:
        return
    tasks = {**known.tasks, shell.id: record}
    for old in list(tasks)[: max(len(tasks) - MAX_RECORDS, 0)]:
        del tasks[old]
    number = shell.id.removeprefix(TASK_ID_PREFIX)
    last = max(known.number, int(number)) if number.isdecimal() and number != shell.id else known.number
    context.state.set(STATE_KEY, msgspec.to_builtins(TaskRecords(last, tasks)))


class RecordedTask(msgspec.Struct, frozen=True):
    """A command that only the session's state knows: its process and output are gone."""

    id: str
    record: TaskRecord

    @property
    def status(self) -> str:
        """Its last status; ``unknown`` if it was running."""
        return "unknown" if self.record.status == "running" else self.record.status

    @property
    def exit_code(self) -> int | None:
        return self.record.exit_code

    @property
    def description(self) -> str:
        """A sentence about its end."""
        if self.record.status == "running":
            return f"{self.id} was running when vaka stopped; its outcome is unknown, and it does not run any more"
        code = "" if self.record.exit_code is None else f" with exit code {self.record.exit_code}"
        return f"{self.id} {_STATUS_PHRASES[self.record.status]}{code}; its output is not at hand any more"


_STATUS_PHRASES: dict[str, str] = {"completed": "ended", "failed": "ended", "killed": "was killed, it ended"}


def find_task(context: ToolContext, id: str) -> ShellProcess | RecordedTask:
    """Return a command of this session. Raises ``NotFound`` for an unknown id."""
    shells = supervisor_of(context)
    shell = shells.find(context.session, id)
    if shell is not None:
        return shell
    known, past = load_records(context).tasks, shells.past_exit_of(context.session, id)
    if past is not None:
        return RecordedTask(id, TaskRecord(known[id].command if id in known else "", past.status, past.code))
    if id in known:
        return RecordedTask(id, known[id])
    ids = [other.id for other in shells.list_shells(context.session)]
    known_ids = f"there are {', '.join(ids)}" if ids else "nothing was started in the background"
    raise NotFound(f"there is no task {id!r}; {known_ids}")


ID_PARAMETERS = ("task_id", "bash_id", "shell_id")


def task_parameters(**more: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool about one command; the id may also come under the names other runtimes use."""
    return {
        "type": "object",
        "properties": {"task_id": {"type": "string"}, **more},
        "anyOf": [{"required": [name]} for name in ID_PARAMETERS],
    }


def read_task_id(tool: str, given: dict[str, Any], *more: str) -> str:
    """Return the id in the arguments. Raises ``InvalidInput`` when it is missing or an argument is unknown."""
    unknown = [name for name in given if name not in (*ID_PARAMETERS, *more)]
    if unknown:
        raise InvalidInput(f"{tool} takes {', '.join(('task_id', *more))}, not {', '.join(map(repr, unknown))}")
    names = [str(given[name]) for name in ID_PARAMETERS if given.get(name)]
    if not names:
        raise InvalidInput(f"{tool} needs a task_id")
    if len(set(names)) > 1:
        raise InvalidInput(f"{tool} is about one task, not {' and '.join(names)}")
    return names[0]


def describe_shell(shell: ShellProcess) -> str:
    """Return a sentence about the status of a command."""
    if shell.running:
        return f"{shell.id} is running"
    ended = "was killed" if shell.status == "killed" else "has ended"
    return f"{shell.id} {ended} with exit code {shell.exit_code}"


MAX_CHARACTERS = 30_000
"""Characters of output in one result."""

TAIL_CHARACTERS = 2_000
"""Characters shown of the end of output that was not stored."""

MAX_VALUE_CHARACTERS = 4_000
"""Characters up to which the output is repeated as data."""

OUTPUT_PARAMETERS = task_parameters(
    filter={"type": "string", "description": "Return only lines that match this regular expression."}
)


_ID_ARGUMENTS = ("task_id", "bash_id", "shell_id")
_READING_TRAITS = ToolTraits(reads=True, session=True, summary=_ID_ARGUMENTS, rule_arguments=_ID_ARGUMENTS)


@builtin_tool("BashOutput", effect="read", poll=True, parameters=OUTPUT_PARAMETERS, traits=_READING_TRAITS)
async def bash_output(context: ToolContext, **given: Any) -> ToolResult:
    """Return new output."""
    shell = find_task(context, read_task_id("BashOutput", given, "filter"))
    if isinstance(shell, RecordedTask):
        return text_result(context, shell.description, {"task_id": shell.id, "status": shell.status, "output": ""})
    known = load_records(context).tasks.get(shell.id)
    start, ended = min(known.read if known else 0, shell.spool.size), not shell.running
    pattern: str = given.get("filter", "")
    if pattern:
        result = await filter_lines(shell.spool, start, pattern, max_characters=MAX_CHARACTERS, final=ended)
        text, end = "\n".join(result.lines), start + result.used
    else:
        text, end = await _read_next(shell, start, ended)
    save_record(context, shell, bytes_read=end)
    lines = [f"[{describe_shell(shell)}]", text or "(no new output)", *_describe_rest(shell, end, ended)]
    lines += [f"[{note}]" for note in describe_removed(supervisor_of(context).take_removed())]
    value = _status_value(shell)
    if shell.gate is not None and (refused := shell.gate.refused_hosts):
        lines += [f"[{note}]" for note in describe_refusals(refused)]
        value["refused_hosts"] = refusal_values(refused)
    if len(text) <= MAX_VALUE_CHARACTERS:
        value["output"] = text
    return text_result(context, "\n".join(lines), value)


async def _read_next(shell: ShellProcess, start: int, ended: bool) -> tuple[str, int]:
    """Return the next piece of output, and where it ends."""
    data = await shell.spool.read(start, 4 * MAX_CHARACTERS)  # no character takes more than four bytes
    text = data.decode("utf-8", "ignore")[:MAX_CHARACTERS]
    if not ended or start + len(text.encode()) < shell.spool.size:
        # An unfinished line is left for the next call unless it is all there is: a secret in it is recognized, and
        # redacted, only as a whole.
        text = text[: text.rfind("\n") + 1] or text
    return text.rstrip("\r\n"), start + len(text.encode())


def _describe_rest(shell: ShellProcess, end: int, ended: bool) -> Iterator[str]:
    spool = shell.spool
    left = spool.size - end
    if left and (ended or left > MAX_CHARACTERS):
        yield f"[{left} bytes more were printed; call again for them]"
    if spool.lost_bytes and not left:
        last = spool.lost_tail().decode("utf-8", "ignore")[-TAIL_CHARACTERS:]
        yield f"[{spool.lost_bytes} bytes after this were not kept ({spool.error}); they end so:]\n{last}"


@builtin_tool("BashStatus", effect="read", poll=True, parameters=task_parameters(), traits=_READING_TRAITS)
async def bash_status(context: ToolContext, **given: Any) -> ToolResult:
    """Return how a command is."""
    shell = find_task(context, read_task_id("BashStatus", given))
    if isinstance(shell, RecordedTask):
        return text_result(context, shell.description, _status_value(shell))
    save_record(context, shell)
    read = load_records(context).tasks[shell.id].read
    unread = shell.spool.size - min(read, shell.spool.size)
    text = f"{describe_shell(shell)}; {unread} bytes of its output were not read yet"
    return text_result(context, text, {**_status_value(shell), "unread_bytes": unread})


def _status_value(shell: ShellProcess | RecordedTask) -> dict[str, Any]:
    return {"task_id": shell.id, "status": shell.status, "exit_code": shell.exit_code}


@builtin_tool(
    "KillTask",
    effect="idempotent",
    parameters=task_parameters(),
    traits=ToolTraits(commands=True, session=True, summary=_ID_ARGUMENTS, rule_arguments=_ID_ARGUMENTS),
)
async def kill_task(context: ToolContext, **given: Any) -> ToolResult:
    """End a command."""
    shell = find_task(context, read_task_id("KillTask", given))
    if isinstance(shell, RecordedTask):
        return text_result(context, shell.description, _status_value(shell))
    was_running = shell.running
    if was_running:
        await shell.stop()
    save_record(context, shell)
    note = "" if was_running else "; there was nothing to end"
    removed = "".join(f"\n[{line}]" for line in describe_removed(supervisor_of(context).take_removed()))
    return text_result(context, describe_shell(shell) + note + removed, _status_value(shell))
