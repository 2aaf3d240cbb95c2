"""Runs the hooks of an event: all at once, each command once, and merges what they decide."""

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias, cast

import msgspec

from vaka.config.hook_definition import EVENTS, OTHER_EVENTS, Hook, select_hooks
from vaka.core.loop.context import Turn
from vaka.core.ports.model import Model, Prompt
from vaka.core.types.context import ContextCompacted
from vaka.core.types.control import QuestionAsked
from vaka.core.types.errors import InvalidInput, VakaError
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.keywords import find_near_names
from vaka.core.types.message import Text, UserMessage
from vaka.core.types.monitor import HookRan, McpChanged, ModelSelected
from vaka.hooks.command import CommandResult, RunCommand, run_command
from vaka.hooks.decision import HookDecision, announces_async, merge_decisions, read_decision
from vaka.hooks.transcript import Transcripts

_log = logging.getLogger(__name__)

MAX_RECORDED_OUTPUT = 2000
"""Characters of the output of a hook in the log."""
ENDING_AT_ONCE = 16
"""Sessions whose ``SessionEnd`` hooks run at the same time when a runtime is closed."""
STOP_EVENTS = ("Stop", "SubagentStop")
COMPACTED_EVENTS = ("ContextCompacted", "PostCompact")
UNWAITED_EVENTS = ("Notification",)
"""Events whose hooks nothing waits for: a person is asked while they run."""

HookMiddleware: TypeAlias = (
    "Callable[[str, Mapping[str, Any], Callable[[], Awaitable[HookDecision]]], Awaitable[HookDecision]]"
)
"""Wraps the run of an event: gets its name, its payload and the rest of the chain."""

MODEL_AGENT = "hook"
"""The agent under which model calls of hooks are counted."""
_PROMPT_SUFFIX = '\n\nAnswer with JSON only: {"ok": true} or {"ok": false, "reason": "why"}.'


class HookSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How and where hooks run."""

    cwd: str
    environ: Callable[[], Mapping[str, str]] = lambda: os.environ
    """Returns the environment of commands, before the variables of hooks are added."""
    run_command: RunCommand = run_command
    """Runs a command; by default outside of the sandbox."""
    permission_mode: Callable[[], str] = lambda: "default"
    find_model: Callable[[str], Model] | None = None
    """Finds the model that a prompt hook names."""
    middleware: Sequence[HookMiddleware] = ()
    failure: str = "open"
    """``closed``: a managed hook that fails or takes too long refuses what it guards."""
    max_sessions: int = 1024
    """The most sessions that are open for hooks at the same time; one more ends the session that was idle longest."""
    component_events: frozenset[str] = frozenset()
    """The events of hooks that skills, commands and agents define."""
    component_hooks: Callable[[Turn], Sequence[tuple[Hook, bool]]] | None = None
    """Returns the hooks of the components in use by an agent or its parents, and whether it is the agent's own."""


class _OpenSession(msgspec.Struct):
    """The state of a session for hooks, until it ends."""

    ran: set[tuple[str, ...]] = msgspec.field(default_factory=set[tuple[str, ...]])
    """Its ``once`` hooks that ran."""
    context: tuple[str, ...] = ()
    """Texts of ``SessionStart`` that no prompt has taken."""


class HookEngine:
    """The hooks of a runtime."""

    def __init__(self, hooks: Sequence[Hook], settings: HookSettings, transcripts: Transcripts) -> None:
        self.hooks = tuple(hook for hook in hooks if not hook.disabled)
        self.settings, self.transcripts = settings, transcripts
        for hook in self.hooks:
            _check_hook(hook)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._sessions: dict[SessionId, _OpenSession] = {}
        """The open sessions, the longest idle first."""
        self._cleared: SessionId | None = None
        """The session that replaces a cleared session, until it begins."""

    def replace_hooks(self, hooks: Sequence[Hook]) -> None:
        """Run other hooks from now on; sessions stay open."""
        self.hooks = tuple(hooks)
        for name in ("_events", "_environ"):
            vars(self).pop(name, None)

    def handles(self, *events: str) -> bool:
        """Return whether there is a hook for one of the events."""
        return any(event in self._events for event in events)

    @property
    def handles_stored_events(self) -> bool:
        """Whether ``observe`` must be called with the events that logs have stored."""
        return self.handles("ModelSelected", "MCPToolsChanged", "Notification", *COMPACTED_EVENTS)

    @property
    def needs_sessions(self) -> bool:
        """Whether the sessions must be known: for ``SessionEnd`` and for hooks that run once in a session."""
        return (
            self.handles("SessionStart", "SessionEnd")
            or any(hook.once for hook in self.hooks)
            or bool(self.settings.component_events)
        )

    @cached_property
    def _events(self) -> frozenset[str]:
        found = {hook.event for hook in self.hooks} | self.settings.component_events
        return frozenset(found | set(STOP_EVENTS) if "Stop" in self.settings.component_events else found)

    @cached_property
    def _environ(self) -> dict[str, str]:
        return {**self.settings.environ(), "CLAUDE_PROJECT_DIR": self.settings.cwd}

    async def fire(
        self,
        event: str,
        fields: Mapping[str, Any],
        *,
        session: SessionId,
        turn: Turn | None = None,
        covers: Callable[[str], bool] | None = None,
    ) -> HookDecision:
        """Run the hooks of an event and return their merged decision.

        ``fields`` are its part of the payload. ``covers`` returns whether a permission rule matches the call that the
        event is about.
        """
        known = self._sessions.get(session)
        ran = known.ran if known is not None else set[tuple[str, ...]]()

        def may_run(hook: Hook) -> bool:
            return hook.identity not in ran and _meets_condition(hook, covers)

        hooks = select_hooks(self._hooks_for(event, turn), event, fields, may_run)
        if not hooks:
            return HookDecision()
        ran.update(hook.identity for hook in hooks if hook.once)
        payload = await self._payload_of(event, fields, session, turn)

        async def run_all() -> HookDecision:
            detached = [hook for hook in hooks if hook.detached or event in UNWAITED_EVENTS]
            for hook in detached:
                self._spawn(self._run_detached(hook, payload))
            waited = [self._run(hook, payload, turn) for hook in hooks if hook not in detached]
            return merge_decisions(await asyncio.gather(*waited))

        work: Callable[[], Awaitable[HookDecision]] = run_all
        for middleware in reversed(self.settings.middleware):
            work = _wrap(middleware, event, payload, work)
        return await work()

    def _hooks_for(self, event: str, turn: Turn | None) -> list[Hook]:
        """Return the hooks of an event: the runtime's hooks, then the hooks of the components in use."""
        found = [hook for hook in self.hooks if hook.event == event]
        if turn is None or self.settings.component_hooks is None:
            return found
        for hook, own in self.settings.component_hooks(turn):
            if hook.event == "Stop" and event in STOP_EVENTS and own:  # the end of the agent that uses the component
                found.append(msgspec.structs.replace(hook, event=event, matcher=""))
            elif hook.event == event != "Stop":
                found.append(hook)
        return found

    async def start_session(self, turn: Turn) -> HookDecision:
        """Fire ``SessionStart`` before the first prompt that this engine sees of a session."""
        known = self._sessions.pop(turn.session, None)
        self._sessions[turn.session] = known or _OpenSession()
        if known is not None:
            context, known.context = known.context, ()
            return HookDecision(context=context)
        if len(self._sessions) > self.settings.max_sessions:
            self._spawn(self.end_session(next(iter(self._sessions)), "other"))
        source = "resume" if turn.state.usage.total or turn.state.calls else "startup"
        if turn.session == self._cleared:
            source, self._cleared = "clear", None
        return await self._fire_start(turn, source)

    async def start_again(self, turn: Turn) -> HookDecision:
        """Fire ``SessionStart`` after a summary has taken the place of older messages."""
        return await self._fire_start(turn, "compact") if turn.session in self._sessions else HookDecision()

    async def _fire_start(self, turn: Turn, source: str) -> HookDecision:
        fields = {"source": source, "model": turn.recipe.model.name, "agent_type": turn.agent}
        return await self.fire("SessionStart", fields, session=turn.session, turn=turn)

    def keep_context(self, session: SessionId, context: tuple[str, ...]) -> None:
        """Keep the texts of ``SessionStart`` for the next prompt, because this one was refused."""
        if session in self._sessions:
            self._sessions[session].context = context

    async def end_session(self, session: SessionId, reason: str, successor: SessionId | None = None) -> None:
        """Fire ``SessionEnd`` if the session was started. ``successor`` is the session that replaces a cleared one."""
        self._cleared = successor or self._cleared
        if session in self._sessions:
            del self._sessions[session]
            await self.fire("SessionEnd", {"reason": reason}, session=session)
            self.transcripts.forget(session)

    async def close(self, reason: str = "other") -> None:
        """End all sessions, and wait for the hooks that nothing waits for."""
        places = asyncio.Semaphore(ENDING_AT_ONCE)

        async def end(session: SessionId) -> None:
            async with places:
                await self.end_session(session, reason)

        ended = await asyncio.gather(*map(end, list(self._sessions)), return_exceptions=True)
        while self._tasks:
            await asyncio.wait(self._tasks)
        self.transcripts.close()
        for error in ended:
            if error is not None:
                raise error

    def observe(self, events: Sequence[Event]) -> None:
        """Fire the hooks that only watch, for events that a log has just stored."""
        for event in events:
            fields: dict[str, Any]
            match event.data:
                case ContextCompacted() as body:
                    self._observe_compaction(event.session, body)
                    continue
                case ModelSelected(model=model, tier=tier, reason=reason):
                    name, fields = "ModelSelected", {"model": model, "model_tier": tier, "reason": reason}
                case McpChanged(server=server, change=change, detail=detail):
                    tools: Any = cast("dict[str, Any]", detail).get("tools") if isinstance(detail, dict) else detail
                    name, fields = "MCPToolsChanged", {"server": server, "change": change, "tools": tools or ()}
                case QuestionAsked(text=text):
                    fields = {"message": text, "title": "Question", "notification_type": "elicitation_dialog"}
                    name = "Notification"
                case _:
                    continue
            if self.handles(name):
                self._spawn(self.fire(name, fields, session=event.session))

    def _observe_compaction(self, session: SessionId, body: ContextCompacted) -> None:
        """Fire both names of the event: vaka's name and Claude Code's."""
        fields = {
            "trigger": body.trigger,
            "custom_instructions": body.instructions,
            "summary": body.summary,
            "compact_summary": body.summary,
            "estimated_tokens_before": body.before,
            "estimated_tokens_after": body.after,
            "original_messages": body.messages,
            "preserved_messages": body.kept_messages,
        }
        for name in COMPACTED_EVENTS:
            if self.handles(name):
                self._spawn(self.fire(name, fields, session=session))

    def _spawn(self, work: Awaitable[object]) -> None:
        """Run work that nothing waits for; ``close`` does."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _payload_of(
        self, event: str, fields: Mapping[str, Any], session: SessionId, turn: Turn | None
    ) -> dict[str, Any]:
        root = path = self.transcripts.path_of(session)
        if turn is not None:
            await turn.log.append(turn.scope)  # the transcripts have what was said up to now
            await self.transcripts.flush(turn.log.store, session)
            path = await self.transcripts.flush(turn.log.store, session, turn.path) if turn.path else root
        common: dict[str, Any] = {
            "session_id": session,
            "transcript_path": str(root),
            "cwd": self.settings.cwd,
            "permission_mode": self.settings.permission_mode(),
            "hook_event_name": event,
        }
        if path != root:
            common["agent_transcript_path"] = str(path)
        return common | dict(fields)

    async def _run_detached(self, hook: Hook, payload: Mapping[str, Any]) -> None:
        """Run a hook that nothing waits for; what goes wrong is reported, since the turn may have ended."""
        for message in (await self._run(hook, payload, None)).messages:
            _log.warning("hook of %s: %s", hook.event, message)

    async def _run(self, hook: Hook, payload: Mapping[str, Any], turn: Turn | None) -> HookDecision:
        encoded = msgspec.json.encode(payload)
        if hook.kind == "command":
            result = await self._run_command(hook, encoded, payload["session_id"])
        else:
            result = await self._ask_model(hook, encoded.decode(), turn)
        problem = (
            f"a hook of {hook.event} took longer than {hook.seconds:g} s and was stopped" if result.timed_out else ""
        )
        decision = read_decision(hook.event, result.status, result.stdout, result.stderr, problem=problem)
        if turn is not None:
            turn.log.defer(turn.scope, _ran_event(hook, result, quiet=decision.quiet))
        if not (problem or result.status not in (0, 2)):
            return decision
        messages = tuple(f"{message} ({_shorten(hook.text)})" for message in decision.messages)
        if hook.managed and self.settings.failure == "closed":
            reason = f"a hook of {hook.event} failed: {problem or result.stderr.strip()[:500]}"
            return HookDecision(permission="deny", reason=reason, messages=messages)
        return msgspec.structs.replace(decision, messages=messages)

    async def _run_command(self, hook: Hook, payload: bytes, session: SessionId) -> CommandResult:
        """Run a command. If its first line is ``{"async": true}``, it goes on in the background and decides nothing."""
        env, detached = {**self._environ, **hook.env}, asyncio.get_running_loop().create_future()
        if hook.event == "SessionStart":
            env["CLAUDE_ENV_FILE"] = str(self.transcripts.new_env_file(session, hook.text))

        def read_line(line: bytes) -> None:
            if announces_async(line) and not detached.done():
                detached.set_result(None)

        run, cwd = self.settings.run_command, self.settings.cwd
        work = asyncio.ensure_future(
            run(hook.command, payload, cwd=cwd, env=env, seconds=hook.seconds, on_line=read_line)
        )
        try:
            await asyncio.wait((work, detached), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait((work,))
            raise
        if not detached.done():
            return work.result()
        self._spawn(work)
        return CommandResult(status=0)

    async def _ask_model(self, hook: Hook, payload: str, turn: Turn | None) -> CommandResult:
        """Ask a model whether to go on; its answer is read like the output of a command."""
        if turn is None:
            return CommandResult(status=1, stderr="prompt hooks run only during a turn")
        find, question = self.settings.find_model, hook.prompt.replace("$ARGUMENTS", payload)
        if "$ARGUMENTS" not in hook.prompt:
            question = f"{hook.prompt}\n\n{payload}"
        prompt = Prompt(messages=(UserMessage(content=(Text(text=question + _PROMPT_SUFFIX),)),), agent=MODEL_AGENT)
        try:
            model = find(hook.model) if hook.model and find is not None else turn.recipe.model
            async with asyncio.timeout(hook.seconds):
                answer = await turn.ask_model(model, prompt)
        except TimeoutError:
            return CommandResult(status=1, timed_out=True)
        except VakaError as error:
            return CommandResult(status=1, stderr=str(error))
        return _read_model_answer(answer)


def _check_hook(hook: Hook) -> None:
    """Report a hook that never runs. Raises ``InvalidInput`` for a matcher that is not a regular expression."""
    if not hook.origin and hook.event not in (*EVENTS, *OTHER_EVENTS):
        near = find_near_names(hook.event, EVENTS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(EVENTS)}"
        _log.warning("a hook of %r never runs, since there is no such event; %s", hook.event, hint)
    try:
        hook.matches({})
    except re.error as error:
        raise InvalidInput(f"the matcher {hook.matcher!r} of a hook is not a regular expression: {error}") from error


def _meets_condition(hook: Hook, covers: Callable[[str], bool] | None) -> bool:
    """Return whether the call matches the rule of the hook's ``if``; a rule that cannot be read matches nothing."""
    if not hook.condition:
        return True
    try:
        return covers is not None and covers(hook.condition)
    except VakaError:
        return False


def _wrap(
    middleware: HookMiddleware, event: str, payload: Mapping[str, Any], inner: Callable[[], Awaitable[HookDecision]]
) -> Callable[[], Awaitable[HookDecision]]:
    return lambda: middleware(event, payload, inner)


def _ran_event(hook: Hook, result: CommandResult, *, quiet: bool) -> HookRan:
    output = "" if quiet else (result.stdout or result.stderr).strip()[:MAX_RECORDED_OUTPUT]
    return HookRan(
        event=hook.event, command=hook.text, status=result.status, duration_ms=result.duration_ms, output=output
    )


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 100 else f"{line[:99]}…"


def _read_model_answer(answer: str) -> CommandResult:
    begin, end = answer.find("{"), answer.rfind("}")
    try:
        document = msgspec.json.decode(answer[begin : end + 1])
        ok = document["ok"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return CommandResult(status=1, stderr=f"the model did not answer with JSON that has 'ok': {answer[:200]}")
    if ok is True:
        return CommandResult(status=0)
    return CommandResult(status=2, stderr=str(document.get("reason") or "a prompt hook refused this"))
