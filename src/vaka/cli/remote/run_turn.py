"""Run one turn of a session on a server: send the prompt, show the events, ask for decisions, stop on signals."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing, nullcontext, suppress
from typing import Any

import msgspec

from vaka import __version__
from vaka.cli.build_agent import parse_model_options
from vaka.cli.display.view import TICK_SECONDS
from vaka.cli.kit.bootstrap import can_ask, load_flag_settings
from vaka.cli.kit.errors import Quit, UsageError
from vaka.cli.kit.event_loop import SignalHandler, run_loop
from vaka.cli.kit.render import typed_command
from vaka.cli.remote.client import ServerClient
from vaka.cli.remote.flags import RUN_FLAGS, check_remote_flags, read_key
from vaka.cli.remote.runtime import RemotePrompter, RemoteRuntime, RemoteSession
from vaka.cli.strings import translate
from vaka.cli.turn.input import read_prompt
from vaka.cli.turn.report import Report, decision_hint
from vaka.core.ports.store import PendingDecision
from vaka.core.session.index_rows import find_asked_decisions, find_settled_decisions
from vaka.core.types.control import ApprovalExpired, ApprovalRequested, ApprovalResolved, QuestionAnswered
from vaka.core.types.errors import NotFound, VakaError
from vaka.core.types.event import Event
from vaka.core.types.message import Part, Stored, Text, replace_surrogates
from vaka.core.types.progress import MessageCompleted, TurnStarted
from vaka.runtime.options import UserInput

_DECIDED = (ApprovalResolved, ApprovalExpired, QuestionAnswered)
_REFUSAL = "no person can be asked here"


class RemoteTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The session of a run on a server, and its input."""

    session: str = ""
    agent: str = ""
    resume: bool = False
    content: UserInput = ""
    model: str = ""
    options: dict[str, Any] = {}
    ask: str = ""
    """What to do when a person must decide: ``wait`` (at a terminal: ask), ``suspend`` or ``deny``."""


def run_on_server(words: tuple[str, ...], flags: Mapping[str, Any], report: Report) -> int:
    """Run one turn on the server of the flags; return the exit code."""
    check_remote_flags(RUN_FLAGS)
    if flags["input"] != "text":
        raise UsageError("--input stream-json does not go with --server; the server has an API for programs")
    if flags["resume"] and (words or flags["attach"] or not flags["session"]):
        raise UsageError("--resume takes a --session and no prompt; leave the prompt and --attach out")
    report.set_format(load_flag_settings(flags)["output"])
    key, target = read_key(flags["api_key_file"]), _parse_target(words, flags)

    async def work() -> int:
        async with ServerClient(flags["server_url"], key, on_lost=report.print_note) as client:
            return await RemoteTurn(client, target, report).run()

    return run_loop(work())


def _parse_target(words: tuple[str, ...], flags: Mapping[str, Any]) -> RemoteTarget:
    prompt = "" if flags["resume"] else replace_surrogates(read_prompt(words))
    parts: tuple[Part, ...] = ()
    if flags["attach"]:
        from vaka.cli.turn.attachments import read_attachments

        parts = read_attachments(flags["attach"])
    return RemoteTarget(
        session=flags["session"] or "",
        agent=flags["agent"] or "",
        resume=flags["resume"],
        model=flags["model"] or "",
        content=(Text(text=prompt), *parts) if parts else prompt,
        options=parse_model_options(flags["option"]),
        ask=flags["ask"] or "",
    )


class RemoteTurn:
    """Runs one turn of a server and reports it."""

    def __init__(self, client: ServerClient, target: RemoteTarget, report: Report) -> None:
        self._target = target
        self._report = report
        self._url = client.url
        self._runtime = RemoteRuntime(client, target.agent)
        self._ask = target.ask or ("wait" if can_ask() else "deny")
        self._session: RemoteSession | None = None
        self._turn = ""
        """The id of the turn, or the key of its input."""
        self._open: dict[str, PendingDecision] = {}
        self._has_stored_text = False
        self._task: asyncio.Task[object] | None = None
        self._stopping: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Run the turn to its end, or to where a person is needed; return the exit code."""
        self._task = asyncio.current_task()
        broken = KeyboardInterrupt()
        loop = asyncio.get_running_loop()
        with SignalHandler(loop, self._request_stop, lambda: self._report.write_failure(broken)) as signals:
            try:
                session = self._session = await self._runtime.open(id=self._target.session)
                self._report_session(session)
                await self._begin(session)
                ticker = asyncio.create_task(self._tick())
                try:
                    await self._read_turn(session, signals)
                finally:
                    ticker.cancel()
            except asyncio.CancelledError:
                if not signals.code:
                    raise
                raise Quit(signals.code) from None
        self._report.recorder.signal = signals.code
        return await self._finish(session)

    def _report_session(self, session: RemoteSession) -> None:
        report, info = self._report, session.info
        report.recorder.session = session.id
        report.write_session(
            session_id=session.id,
            server=self._url,
            cursor=f"{info.epoch}.{info.head}",
            resumed=info.head > 1,
            agent=info.agent,
            ask=self._ask,
            version=__version__,
        )

    async def _begin(self, session: RemoteSession) -> None:
        target = self._target
        if target.resume:
            self._turn = session.info.turn or (await session.find_turn())["id"]
            return
        key = self._runtime.ids.new_id("inp")
        self._turn = key
        await session.send(target.content, key=key, model=target.model, options=target.options)

    async def _read_turn(self, session: RemoteSession, signals: SignalHandler) -> None:
        """Show the turn, and decide or ask; return at its end, or when only a person can continue it."""
        from vaka.cli.turn.terminal_prompt import TerminalPrompt

        with TerminalPrompt(self._report.display) if self._asks else nullcontext() as face:
            prompter = RemotePrompter(self._runtime, session.id, face) if face is not None else None
            try:
                async with aclosing(session.follow_turn(self._turn)) as events:
                    async for event in events:
                        await self._show(event)
                        if prompter is not None:
                            prompter.take(event)
                        elif self._note_decision(event) and not await self._refuse_decisions():
                            return
                        if signals.code and isinstance(event.data, TurnStarted):
                            self._request_stop()
            finally:
                if prompter is not None:
                    prompter.close()

    @property
    def _asks(self) -> bool:
        """Whether decisions are asked for at the terminal."""
        return self._ask == "wait" and can_ask()

    async def _show(self, event: Event) -> None:
        if isinstance(event.data, _DECIDED):
            self._report.show_decision(event)
            return
        if isinstance(event.data, MessageCompleted) and not event.path:
            self._has_stored_text = any(isinstance(part, Stored) for part in event.data.content)
        await self._report.write_event(event)

    def _note_decision(self, event: Event) -> bool:
        """Note what an event asks and settles; return whether decisions are open now that were not before."""
        settled, everything = find_settled_decisions([event])
        for id in [*self._open] if everything else settled:
            self._open.pop(id, None)
        asked = list(find_asked_decisions(event.session, [event]))
        self._open.update((row.id, row) for row in asked)
        return bool(asked)

    async def _refuse_decisions(self) -> bool:
        """Decide without a person as ``--ask`` says; return whether the turn goes on."""
        rows = await self._runtime.decisions(self._report.recorder.session)
        self._open = {row.id: row for row in rows}  # an event from the beginning of the turn may be settled long since
        for row in self._open.values() if self._ask == "wait" else ():
            from vaka.cli.turn.approval_view import describe_decision

            what = decision_hint(describe_decision(row), server=self._url)
            self._report.print_note(translate("waiting: {what}", what=what))
        if self._ask != "deny":
            return self._ask == "wait" or not self._open
        for row in [*self._open.values()]:
            try:
                if isinstance(row.event.data, ApprovalRequested):
                    await self._runtime.resolve(row.id, "reject", message=_REFUSAL)
                else:
                    await self._runtime.answer(row.id, None)
            except NotFound:  # another person was faster
                continue
            except VakaError as error:  # the key may not decide, for example
                self._report.print_note(str(error))
                return False
        return True

    async def _finish(self, session: RemoteSession) -> int:
        from vaka.cli.turn.approval_view import describe_decision

        report, ended = self._report, self._report.recorder.ended
        if ended and self._has_stored_text:
            report.recorder.collector.set_full_text((await session.find_turn(self._turn))["text"])
        report.server = self._url
        rows = () if ended else tuple(self._open.values())
        code = report.finish([describe_decision(row) for row in rows])
        words = ("run", "--server", self._url, "--session", session.id)
        command = typed_command(*words, "--resume") if rows else typed_command(*words)
        if report.format == "text":
            note = "then continue with: {command}" if rows else "continue with: {command}"
            report.print_note(translate(note, command=command))
        return code

    async def _tick(self) -> None:
        """Draw what is running, as long as the turn runs."""
        display = self._report.display
        while display is not None and display.for_terminal:
            display.tick()
            await asyncio.sleep(TICK_SECONDS)

    def _request_stop(self) -> None:
        task = asyncio.ensure_future(self._stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def _stop(self) -> None:
        """Cancel the turn on the server; without one, or without the server, stop waiting."""
        if self._session is not None and self._turn:
            with suppress(VakaError):
                await self._session.cancel(self._turn, "stopped from the command line")
                return
        if self._task is not None:
            self._task.cancel()
