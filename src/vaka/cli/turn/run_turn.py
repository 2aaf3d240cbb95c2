"""Run one turn of one session: open the session, stream the events, stop on signals, return the exit code."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

import msgspec

from vaka import __version__
from vaka.agents.react import Agent
from vaka.cli.display.call_summary import TraitsByName, declared_by
from vaka.cli.display.view import TICK_SECONDS
from vaka.cli.kit.bootstrap import can_ask, current_user, runtime_from_settings
from vaka.cli.kit.errors import Quit
from vaka.cli.kit.event_loop import SignalHandler
from vaka.cli.kit.render import as_printable, quote_words, typed_command
from vaka.cli.strings import translate
from vaka.cli.turn.report import Report, decision_hint
from vaka.cli.turn.session_record import resolve_session_ref
from vaka.config.settings import Settings
from vaka.core.ports.policy import Policy
from vaka.core.ports.store import SessionInfo, Store
from vaka.core.session.index_rows import find_asked_decisions
from vaka.core.types.control import RunSettings
from vaka.core.types.errors import NotFound, Suspended, VakaError
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.message import Part, Text, ToolCall, replace_surrogates
from vaka.core.types.progress import TurnStarted
from vaka.core.types.tool import Ask
from vaka.policy.policy import LayeredPolicy
from vaka.policy.tool_targets import spec_of
from vaka.runtime.options import UserInput
from vaka.runtime.runtime import Runtime
from vaka.runtime.session import Session, binding_of
from vaka.runtime.turn_stream import TurnStream

NOT_ASKED = "no person can be asked here"
"""Part of the result of a call that needed an approval where none could be requested."""


class RunTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The session of a run, and its input."""

    session: str = ""
    resume: bool = False
    fork: str = ""
    prompt: str = ""
    parts: tuple[Part, ...] = ()
    """Attachments."""
    streamed: bool = False
    """Whether stdin has lines of JSON with messages and decisions."""
    ask: str = ""
    """What the turn does when a person must decide; default: as the settings say."""
    run_settings: RunSettings | None = None
    """How the session is run, for its log."""

    @property
    def content(self) -> UserInput:
        """The prompt, followed by the attachments."""
        return (Text(text=replace_surrogates(self.prompt)), *self.parts) if self.parts else self.prompt


async def run_turn(
    target: RunTarget, settings: Settings, agent: Agent, report: Report, store: Store | None = None
) -> int:
    """Run one turn with the runtime that the settings describe, on ``store`` if it is open; return the exit code."""
    async with runtime_from_settings(settings, agent, quiet=report.quiet, ask=target.ask, store=store) as runtime:
        return await TurnRunner(runtime, report).run(target)


class TurnRunner:
    """Runs one turn and reports it."""

    def __init__(self, runtime: Runtime, report: Report) -> None:
        self.runtime, self.report = runtime, report
        self._session: Session | None = None
        self._task: asyncio.Task[object] | None = None
        self._stop_tasks: set[asyncio.Task[None]] = set()

    async def run(self, target: RunTarget) -> int:
        """Run the turn to its end, or to where a person is needed; return the exit code."""
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        with SignalHandler(loop, self._request_stop, lambda: self.report.write_failure(KeyboardInterrupt())) as signals:
            session = self._session = await open_session(self.runtime, target)
            info = await self.runtime.store.sessions.find(session.id)
            cursor = f"{info.epoch}.{info.head}" if info else "1.0"
            self._report_session(session, info, cursor)
            try:
                before = info if info is not None and not info.live else None
                code = await self._stream_turn(session, target, cursor, signals, before)
            except Suspended as suspended:
                code = await self._report_suspension(session, suspended)
            except asyncio.CancelledError:
                if not signals.code:
                    raise
                raise Quit(signals.code) from None
        return code

    async def _stream_turn(
        self, session: Session, target: RunTarget, cursor: str, signals: SignalHandler, before: SessionInfo | None
    ) -> int:
        """Report the turn; if the session has an unfinished turn or queued inputs ``before``, report those first."""
        if target.streamed:
            from vaka.cli.turn.stream_input import StreamedRun

            run = StreamedRun(self.runtime, self.report, session, signals)
            return await run.run(target.content, cursor, resume=target.resume)
        unfinished = before is not None and bool(before.turn)
        earlier = before is not None and bool(before.turn or before.inputs)
        declared = declared_by(session.agent)
        if self.report.display is not None:
            self.report.display.declared = declared
        prompter = self._start_prompter(session.id, cursor, declared)
        ticker = asyncio.create_task(self._tick())
        try:
            if target.resume or unfinished:
                await self._replay_last_turn(session)
            async with aclosing(self._open_events(session, target, earlier=earlier)) as events:
                async for event in events:
                    await self.report.write_event(event)
                    if signals.code and isinstance(event.data, TurnStarted):
                        self._request_stop()
        finally:
            ticker.cancel()
            if prompter is not None:
                prompter.cancel()
                with suppress(asyncio.CancelledError):
                    await prompter
        self.report.recorder.signal = signals.code
        if not self.report.recorder.is_shared:
            await self.report.recorder.collector.restore_text(self.runtime.store.blobs)
        return self.report.finish(hint=self._refusal_hint())

    def _open_events(
        self, session: Session, target: RunTarget, *, earlier: bool
    ) -> "TurnStream | AsyncGenerator[Event]":
        if target.resume:
            return session.resume()
        return session.stream(target.content, earlier=True) if earlier else self._run_new_turn(session, target.content)

    async def _run_new_turn(self, session: Session, content: UserInput) -> AsyncGenerator[Event]:
        """Yield the events of a new turn; its reader collects the result for the report."""
        collector = self.report.recorder.share_collector(session.id)
        reader, _ = await binding_of(session).open_turn(content, collector=collector)
        async with reader:
            while not collector.ended:
                for event in await reader.next_batch():
                    yield event

    def _refusal_hint(self) -> str:
        """Return the flags that would have avoided refusals for want of a person, ``""`` if there were none."""
        policy, recorder = self.runtime.env.policy, self.report.recorder
        denials = [denial for denial in recorder.denials if NOT_ASKED in denial["message"]]
        if self.runtime.env.ask != "deny" or not denials:
            return ""
        rules: list[str] = []
        for denial in denials:
            fields = recorder.calls[denial["id"]]
            call = ToolCall(id=fields["id"], name=fields["name"], arguments=fields["arguments"])
            rules += _allowing_rules(policy, call, denial["message"])
        flags = " ".join(f"--allow {quote_words(rule)}" for rule in dict.fromkeys(rules))
        allow = f"allow it with {as_printable(flags, lines=False)}, or " if flags else ""
        return f"{allow}leave the question open with --ask suspend"

    async def _tick(self) -> None:
        """Draw what is running, as long as the turn runs."""
        display = self.report.display
        while display is not None and display.for_terminal:
            display.tick()
            await asyncio.sleep(TICK_SECONDS)

    async def _replay_last_turn(self, session: Session) -> None:
        """Record the events of the last turn so far; if it has ended, they are the result."""
        for event in await session.last_turn():
            self.report.replay(event)
        if not self.report.recorder.turn_started:
            raise NotFound(f"session {session.id!r} has no turn to resume")

    def _report_session(self, session: Session, info: SessionInfo | None, cursor: str) -> None:
        self.report.recorder.session = session.id
        self.report.write_session(
            session_id=session.id,
            store=self.runtime.store.url,
            cursor=cursor,
            resumed=info is not None,
            agent=session.agent.name,
            ask=self.runtime.env.ask,
            version=__version__,
        )
        if info is not None and info.live:
            text = translate("session {id} runs in another process; waiting for it", id=session.id)
            self.report.print_note(text)

    def _start_prompter(self, session: SessionId, cursor: str, declared: TraitsByName) -> "asyncio.Task[None] | None":
        """Prompt for decisions while the turn waits for them; without a terminal, print how to decide them."""
        if self.runtime.env.ask != "wait":
            return None
        if can_ask():
            return asyncio.create_task(self._prompt_for_decisions(session, cursor, declared))
        return asyncio.create_task(self._print_decisions(session, cursor))

    async def _prompt_for_decisions(self, session: SessionId, cursor: str, declared: TraitsByName) -> None:
        from vaka.cli.turn.approval_prompt import DecisionPrompter
        from vaka.cli.turn.terminal_prompt import TerminalPrompt

        with TerminalPrompt(self.report.display) as face:
            prompter = DecisionPrompter(self.runtime, session, face, declared=declared)
            try:
                await prompter.load()
                async with aclosing(self.runtime.follow(session, after=cursor)) as events:
                    async for event in events:
                        self.report.show_decision(event)
                        prompter.take(event)
            finally:
                prompter.close()

    async def _print_decisions(self, session: SessionId, cursor: str) -> None:
        seen: set[str] = set()
        async with aclosing(self.runtime.follow(session, after=cursor)) as events:
            rows = await self.runtime.decisions(session)
            while True:
                for row in rows:
                    if row.id not in seen:
                        from vaka.cli.turn.approval_view import describe_decision

                        seen.add(row.id)
                        hint = decision_hint(describe_decision(row), self.report.store)
                        self.report.print_note(translate("waiting: {what}", what=hint))
                event = await anext(events)
                self.report.show_decision(event)
                rows = [*find_asked_decisions(session, [event])]

    async def _report_suspension(self, session: Session, suspended: Suspended) -> int:
        from vaka.cli.turn.approval_view import describe_decision

        rows = await self.runtime.decisions(session.id)
        code = self.report.finish([describe_decision(row) for row in rows if row.id in suspended.decisions])
        command = typed_command("run", "--session", session.id, "--resume", store=self.report.store)
        self.report.print_note(translate("then continue with: {command}", command=command))
        return code

    def _request_stop(self) -> None:
        """Interrupt the turn if this process runs it, else stop waiting for it."""
        task = asyncio.ensure_future(self._interrupt_turn())
        self._stop_tasks.add(task)
        task.add_done_callback(self._stop_tasks.discard)

    async def _interrupt_turn(self) -> None:
        session = self._session
        if session is not None and (self.report.recorder.turn_started or self.runtime.is_running(session.id)):
            with suppress(VakaError):
                await session.interrupt("stopped from the command line", by=current_user())
                return
        if self._task is not None:
            self._task.cancel()


def _allowing_rules(policy: Policy, call: ToolCall, refusal: str) -> list[str]:
    """Return rules that would have allowed a call, none if something else than the policy has asked."""
    spec = spec_of(call.name)
    if not isinstance(policy, LayeredPolicy):
        return []
    verdict = policy.judge(call, spec, ())
    is_cause = isinstance(verdict, Ask) and refusal.startswith(verdict.reason)
    return policy.rule_for(call, spec).splitlines() if is_cause else []


async def open_session(runtime: Runtime, target: RunTarget) -> Session:
    """Open the session of a run: a named or new one, or a copy."""
    id = target.session
    if target.fork:
        origin, at = await resolve_session_ref(runtime.store, target.fork)
        id = await runtime.fork(origin, at=at, id=id)
    return await runtime.open(id=id, run_settings=target.run_settings)
