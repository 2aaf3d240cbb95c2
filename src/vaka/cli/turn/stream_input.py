"""``vaka run --input stream-json``: a program sends messages and decisions as lines of JSON on stdin."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from vaka.cli.kit.bootstrap import current_user
from vaka.cli.kit.errors import UsageError, describe_error
from vaka.cli.kit.event_loop import SignalHandler
from vaka.cli.turn.input import StdinReader
from vaka.cli.turn.report import Report
from vaka.core.ports.store import PendingDecision
from vaka.core.session.index_rows import find_asked_decisions, find_settled_decisions
from vaka.core.types.control import ApprovalScope
from vaka.core.types.errors import InvalidInput, VakaError
from vaka.core.types.event import Event
from vaka.core.types.ids import DecisionId
from vaka.core.types.message import Content, Document, Image, Text, replace_surrogates
from vaka.core.types.progress import TURN_ENDS, StepStarted, TurnResumed, TurnStarted
from vaka.runtime.options import UserInput
from vaka.runtime.runtime import Runtime
from vaka.runtime.session import Session

MAX_LINE_BYTES = 10 * 1024 * 1024
"""Bytes of a line; more is an error, and the rest of the line is skipped."""


class BlockSource(msgspec.Struct, frozen=True):
    """The bytes of a picture or document in base64, or where they are."""

    type: Literal["base64", "url"]
    media_type: str = ""
    data: str = ""
    url: str = ""


class TextBlock(msgspec.Struct, frozen=True, tag="text"):
    """A text."""

    text: str


class ImageBlock(msgspec.Struct, frozen=True, tag="image"):
    """A picture."""

    source: BlockSource


class DocumentBlock(msgspec.Struct, frozen=True, tag="document"):
    """A file, such as a PDF."""

    source: BlockSource
    title: str = ""


class MessageBody(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a message."""

    content: str | tuple[TextBlock | ImageBlock | DocumentBlock, ...]
    role: Literal["user"] = "user"


class MessageLine(msgspec.Struct, frozen=True, kw_only=True, tag="user"):
    """A message of the user. While a turn runs, it waits for the end of it or, with ``steer``, joins it."""

    message: MessageBody
    on_busy: Literal["queue", "steer"] = "queue"


class ApprovalLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="approval"):
    """The decision on ``approval.requested``."""

    id: Annotated[str, msgspec.Meta(min_length=1)]
    decision: Literal["approve", "reject"]
    message: str = ""
    """The reason of a rejection, for the model; without one the turn ends."""
    scope: ApprovalScope = "once"
    rule: str = ""
    """The rules to store for a longer scope, one per line; without any, the suggested ones."""
    edit: dict[str, Any] | None = None
    """Arguments with which the call runs instead."""
    ttl: float | None = None
    """Seconds for which an approval for the session applies."""


class AnswerLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="answer"):
    """The answer to ``question.asked``."""

    id: Annotated[str, msgspec.Meta(min_length=1)]
    answer: Any


class InterruptLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="interrupt"):
    """Stop the running turn."""

    note: str = ""


class EndLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="end"):
    """No more lines follow, as at the end of stdin."""


InputLine: TypeAlias = MessageLine | ApprovalLine | AnswerLine | InterruptLine | EndLine
_decoder: msgspec.json.Decoder[InputLine] = msgspec.json.Decoder(InputLine)


def parse_line(line: bytes) -> InputLine:
    """Return what a line asks for. Raises ``InvalidInput``."""
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{error}; a line is of type user, approval, answer, interrupt or end") from error
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise InvalidInput(f"not JSON: {error}; write each message as one JSON object on a line of its own") from error


def content_of(body: MessageBody) -> UserInput:
    """Return the content of a message. Raises ``InvalidInput`` if it is empty."""
    if isinstance(body.content, str):
        parts: Content = (Text(text=replace_surrogates(body.content)),) if body.content.strip() else ()
    else:
        parts = tuple(_part_of(block) for block in body.content)
    if not parts:
        raise InvalidInput("the message is empty; write what to do in message.content")
    return parts


def _part_of(block: TextBlock | ImageBlock | DocumentBlock) -> Text | Image | Document:
    if isinstance(block, TextBlock):
        return Text(text=replace_surrogates(block.text))
    source = block.source
    if not (source.data if source.type == "base64" else source.url):
        raise InvalidInput(f"the source of a block is empty; it needs {'data' if source.type == 'base64' else 'url'}")
    if isinstance(block, ImageBlock):
        return Image(media_type=source.media_type, data=source.data, url=source.url)
    return Document(media_type=source.media_type, data=source.data, url=source.url, name=block.title)


class StreamedRun:
    """Runs the turns that the lines of stdin ask for, and prints their events and a result for each."""

    def __init__(self, runtime: Runtime, report: Report, session: Session, signals: SignalHandler) -> None:
        self.runtime = runtime
        self.report = report
        self.session = session
        self._signals = signals
        self._pending: dict[DecisionId, PendingDecision] = {}
        self._unanswered: set[str] = set()
        """The keys of inputs whose turn has not ended."""
        self._inputs_of_turn: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn_runs = self._input_ended = False
        self._done = asyncio.Event()
        self._code: int | None = None

    async def run(self, prompt: UserInput, cursor: str, *, resume: bool) -> int:
        """Run until the input has ended and all turns with it; return the exit code of the last one."""
        self._pending = {row.id: row for row in await self.runtime.decisions(self.session.id)}
        self._turn_runs = resume
        self._start(self._follow("0.0" if cursor == "1.0" else cursor))  # a new session has no events to go on after
        self._start(self._read(prompt, resume=resume))
        try:
            await self._done.wait()
            for task in self._tasks:
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    raise error
        finally:
            for task in self._tasks:
                task.cancel()
        if self._pending:
            from vaka.cli.turn.approval_view import describe_decision

            self._code = self.report.finish([describe_decision(row) for row in self._pending.values()])
        if self._code is None:
            raise UsageError("stdin had no message; write lines such as " + _EXAMPLE)
        return self._code

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the background; its failure ends the run."""

        def on_done(task: "asyncio.Task[None]") -> None:
            if task.cancelled() or task.exception() is None:
                self._tasks.discard(task)
            else:
                self._done.set()

        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(on_done)

    async def _read(self, prompt: UserInput, *, resume: bool) -> None:
        if resume:
            self._start(self._resume())
        if prompt:
            await self._send(prompt, "queue")
        reader, number = StdinReader(), 0
        while (read := await reader.read_bounded(MAX_LINE_BYTES)) is not None:
            line, length = read
            number += 1
            try:
                if length > MAX_LINE_BYTES:
                    limit = MAX_LINE_BYTES // 1024 // 1024
                    raise InvalidInput(f"the line has {length} bytes, more than {limit} MB; it was skipped")
                if line.strip() and not await self._take_line(parse_line(line)):
                    break
            except VakaError as error:
                description = describe_error(error)
                self.report.write_input_error(number, description.code, description.message)
        self._input_ended = True
        self._check_done()

    async def _take_line(self, line: InputLine) -> bool:
        """Do what a line asks for; return whether more lines may follow."""
        match line:
            case MessageLine():
                await self._send(content_of(line.message), line.on_busy)
            case ApprovalLine():
                fields = msgspec.structs.asdict(line)
                await self._settle(line.id, lambda: self.runtime.resolve(fields.pop("id"), **fields, by=current_user()))
            case AnswerLine():
                await self._settle(line.id, lambda: self.runtime.answer(line.id, line.answer, by=current_user()))
            case InterruptLine():
                await self.session.interrupt(line.note or "stopped by the program", by=current_user())
            case EndLine():
                return False
        return True

    async def _send(self, content: UserInput, on_busy: Literal["queue", "steer"]) -> None:
        on_busy = on_busy if self._turn_runs else "queue"
        self._unanswered.add(await self.session.send(content, on_busy=on_busy))

    async def _settle(self, id: str, settle: Callable[[], Coroutine[Any, Any, Event]]) -> None:
        await settle()
        self._pending.pop(DecisionId(id), None)
        if not self.runtime.is_running(self.session.id):  # the turn was suspended
            self._start(self._resume())

    async def _resume(self) -> None:
        async with aclosing(self.session.resume()) as events:
            async for _ in events:
                pass  # they are printed by ``_follow``

    async def _follow(self, cursor: str) -> None:
        async with aclosing(self.runtime.follow(self.session.id, after=cursor)) as events:
            async for event in events:
                await self.report.write_event(event)
                if self.report.recorder.ended:
                    await self.report.recorder.collector.restore_text(self.runtime.store.blobs)
                self._track(event)

    def _track(self, event: Event) -> None:
        settled, everything = find_settled_decisions([event])
        for id in list(self._pending) if everything else settled:
            self._pending.pop(id, None)
        self._pending.update((row.id, row) for row in find_asked_decisions(self.session.id, [event]))
        body = event.data
        if not event.path and isinstance(body, TurnStarted | TurnResumed):
            self._turn_runs = True
        if not event.path and isinstance(body, TurnStarted | StepStarted):
            self._inputs_of_turn.update(body.inputs)
        if not event.path and isinstance(body, TURN_ENDS):
            self._unanswered -= self._inputs_of_turn
            self._inputs_of_turn.clear()
            self._turn_runs = False
            self.report.recorder.signal = self._signals.code
            self._code = self.report.finish()
            self.report.recorder.begin_turn()
        self._check_done()

    def _check_done(self) -> None:
        """End when no line and no turn is left, or only decisions that no line can give any more; or on a signal."""
        idle = not (self._unanswered or self._turn_runs)
        if (self._input_ended and (self._pending or idle)) or (self._signals.code and not self._turn_runs):
            self._done.set()


_EXAMPLE = '{"type":"user","message":{"role":"user","content":"Say hello."}}'
