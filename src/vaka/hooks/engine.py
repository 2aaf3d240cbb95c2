"""Runs the hooks of an event: all at once, each command once, and merges what they decide."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.ports.model import Model, Prompt
from vaka.core.types.errors import VakaError
from vaka.core.types.ids import SessionId
from vaka.core.types.message import Text, UserMessage
from vaka.core.types.monitor import HookRan
from vaka.hooks.command import CommandResult, run_command
from vaka.hooks.decision import HookDecision, merge_decisions, read_decision
from vaka.hooks.definition import Hook, select_hooks
from vaka.hooks.transcript import Transcripts

MAX_RECORDED_OUTPUT = 2000
"""Characters of the output of a hook in the log."""
MAX_ONCE_SESSIONS = 1024
"""Sessions whose ``once`` hooks are remembered."""

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
    env: Mapping[str, str] = {}
    """Added to the environment of this process."""
    permission_mode: Callable[[], str] = lambda: "default"
    find_model: Callable[[str], Model] | None = None
    """Finds the model that a prompt hook names."""
    middleware: Sequence[HookMiddleware] = ()
    failure: str = "open"
    """``closed``: a managed hook that fails or takes too long refuses what it guards."""


class HookEngine:
    """The hooks of a runtime."""

    def __init__(self, hooks: Sequence[Hook], settings: HookSettings, transcripts: Transcripts) -> None:
        self.hooks, self.settings, self.transcripts = tuple(hooks), settings, transcripts
        self._tasks: set[asyncio.Task[Any]] = set()
        self._sessions: dict[SessionId, None] = {}
        """The sessions that were started and have not ended, in order."""
        self._ran_once: dict[SessionId, set[int]] = {}
        """The positions of the ``once`` hooks that ran, by session."""

    def handles(self, *events: str) -> bool:
        """Return whether there is a hook for one of the events."""
        return any(hook.event in events for hook in self.hooks)

    async def fire(
        self, event: str, fields: Mapping[str, Any], *, session: SessionId, turn: Turn | None = None,
        covers: Callable[[str], bool] | None = None,
    ) -> HookDecision:  # fmt: skip
        """Run the hooks of an event and return their merged decision.

        ``fields`` are its part of the payload. ``covers`` returns whether a permission rule matches the call that the
        event is about.
        """
        hooks = [
            hook for hook in select_hooks(self.hooks, event, fields)
            if _meets_condition(hook, covers) and not self._ran_before(hook, session)
        ]  # fmt: skip
        if not hooks:
            return HookDecision()
        payload = await self._payload_of(event, fields, session, turn)

        async def run_all() -> HookDecision:
            waited = [self._run(hook, payload, turn) for hook in hooks if not hook.detached]
            for hook in hooks:
                if hook.detached:
                    task = asyncio.create_task(self._run(hook, payload, None))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
            return merge_decisions(await asyncio.gather(*waited))

        work: Callable[[], Awaitable[HookDecision]] = run_all
        for middleware in reversed(self.settings.middleware):
            work = _wrap(middleware, event, payload, work)
        return await work()

    async def start_session(self, turn: Turn) -> HookDecision:
        """Fire ``SessionStart`` before the first prompt that this engine sees of a session."""
        if turn.session in self._sessions:
            return HookDecision()
        self._sessions[turn.session] = None
        source = "resume" if turn.state.usage.total or turn.state.calls else "startup"
        fields = {"source": source, "model": turn.recipe.model.name, "agent_type": turn.agent}
        return await self.fire("SessionStart", fields, session=turn.session, turn=turn)

    async def end_session(self, session: SessionId, reason: str) -> None:
        """Fire ``SessionEnd`` if the session was started."""
        if session in self._sessions:
            del self._sessions[session]
            await self.fire("SessionEnd", {"reason": reason}, session=session)

    async def close(self, reason: str = "other") -> None:
        """End all sessions, and wait for the hooks that nothing waits for."""
        for session in list(self._sessions):
            await self.end_session(session, reason)
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _payload_of(
        self, event: str, fields: Mapping[str, Any], session: SessionId, turn: Turn | None
    ) -> dict[str, Any]:
        root = path = self.transcripts.path_of(session)
        if turn is not None:
            await turn.log.append(turn.scope)  # the transcripts have what was said up to now
            await self.transcripts.flush(turn.log.store, session)
            path = await self.transcripts.flush(turn.log.store, session, turn.path) if turn.path else root
        common: dict[str, Any] = {
            "session_id": session, "transcript_path": str(root), "cwd": self.settings.cwd,
            "permission_mode": self.settings.permission_mode(), "hook_event_name": event,
        }  # fmt: skip
        if path != root:
            common["agent_transcript_path"] = str(path)
        return common | dict(fields)

    async def _run(self, hook: Hook, payload: Mapping[str, Any], turn: Turn | None) -> HookDecision:
        encoded = msgspec.json.encode(payload)
        if hook.kind == "command":
            env = {
                **os.environ, "CLAUDE_PROJECT_DIR": self.settings.cwd, **self.settings.env, **hook.env,
            }  # fmt: skip
            result = await run_command(hook.command, encoded, cwd=self.settings.cwd, env=env, seconds=hook.seconds)
        else:
            result = await self._ask_model(hook, encoded.decode(), turn)
        if turn is not None:
            turn.log.defer(turn.scope, _ran_event(hook, result))
        problem = (
            f"a hook of {hook.event} took longer than {hook.seconds:g} s and was stopped" if result.timed_out else ""
        )
        decision = read_decision(hook.event, result.status, result.stdout, result.stderr, problem=problem)
        failed = bool(problem) or result.status not in (0, 2)
        if failed and hook.managed and self.settings.failure == "closed":
            reason = f"a hook of {hook.event} failed: {problem or result.stderr.strip()[:500]}"
            return HookDecision(permission="deny", reason=reason, messages=decision.messages)
        return decision

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

    def _ran_before(self, hook: Hook, session: SessionId) -> bool:
        """Return whether a ``once`` hook has run in this session, and remember that it runs now."""
        if not hook.once:
            return False
        ran = self._ran_once.setdefault(session, set())
        if len(self._ran_once) > MAX_ONCE_SESSIONS:
            self._ran_once.pop(next(iter(self._ran_once)))
        position = next(number for number, known in enumerate(self.hooks) if known is hook)
        seen = position in ran
        ran.add(position)
        return seen


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


def _ran_event(hook: Hook, result: CommandResult) -> HookRan:
    output = (result.stdout or result.stderr).strip()[:MAX_RECORDED_OUTPUT]
    return HookRan(
        event=hook.event, command=hook.text, status=result.status, duration_ms=result.duration_ms, output=output
    )


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
