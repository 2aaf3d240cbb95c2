"""Tools of crash tests: kill this process at a failpoint of a store, and compare the outcomes of two runs.

A test starts a child with ``VAKA_FAILPOINT`` set; the child calls ``enable_failpoints()`` to make it effective:

- ``append.after_rows:7:kill``: the process kills itself (``SIGKILL``) at the seventh pass of that failpoint
- ``count:FILE``: after each pass FILE holds ``{"<failpoint>": <passes>, …}``

Two runs with the same outcome have the same ``fingerprint``. It covers the live branch and nothing that a crash and a
resume may change: no seq, time, id, term or attempt, no order between agents that run concurrently. Inputs, answers,
calls with their arguments and results, decisions, usage and the ends of turns are all in it.
"""

import os
import signal
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from vaka.core.session.branches import live_events_of
from vaka.core.session.fold import fold
from vaka.core.types import context, control, monitor, progress
from vaka.core.types.errors import ConfigError
from vaka.core.types.event import Event
from vaka.core.types.ids import AgentPath, CallId, digest_of
from vaka.core.types.message import CallRef, Content, Usage
from vaka.core.types.state import SessionState
from vaka.stores import common

FAILPOINTS = ("append.before_begin", "append.after_rows", "append.after_commit", "append.before_ack")


def enable_failpoints(plan: str | None = None) -> None:
    """Install ``plan``, or the one in the environment, at the stores' failpoints; without a plan, nothing."""
    plan = os.environ.get("VAKA_FAILPOINT", "") if plan is None else plan
    name, _, rest = plan.partition(":")
    number, _, action = rest.partition(":")
    counts = name == "count" and bool(rest)
    if plan and not counts and (name not in FAILPOINTS or not number.isdigit() or action != "kill"):
        raise ConfigError(
            f"VAKA_FAILPOINT={plan!r} must be <failpoint>:<number>:kill or count:<file>; failpoints: {FAILPOINTS}"
        )
    passes: Counter[str] = Counter()

    def hit(place: str) -> None:
        passes[place] += 1
        if counts:
            Path(rest).write_bytes(msgspec.json.encode(passes))
        elif place == name and passes[place] == int(number):
            os.kill(os.getpid(), signal.SIGKILL)

    common.on_failpoint = hit if plan else None


def disable_failpoints() -> None:
    common.on_failpoint = None


def fingerprint(events: Iterable[Event], *, without: Collection[str] = ()) -> str:
    """Return the fingerprint of a log, without the results of the calls in ``without``."""
    return digest_of(outline_log(events, without=without))


def outline_log(events: Iterable[Event], *, without: Collection[str] = ()) -> dict[str, Any]:
    """Return the data that ``fingerprint`` digests, to compare when two differ."""
    branch = live_events_of(events)
    builder = _OutlineBuilder(frozenset(without))
    for event in branch:
        builder.add_event(event)
    state = fold(SessionState(), branch)
    outline: dict[str, Any] = msgspec.to_builtins(
        {
            "agents": {name: builder.threads[name] for name in sorted(builder.threads)},
            "usage": {name: _usage_fields(builder.usage[name]) for name in sorted(builder.usage)},
            "waiting": [builder.inputs.get(key) for key in state.inputs],
            "unfinished": state.turn is not None,
            "open": sorted(builder.calls[id]["as"] for id in state.open),
            "grants": sorted(state.grants, key=lambda grant: (grant.tool, grant.rule, grant.answers, grant.spec)),
            "checkpoints": sorted(state.checkpoints),
            "values": dict(sorted(state.values.items())),
            "closed": state.closed,
        }
    )
    return outline


class _OutlineBuilder:
    """The facts of a session by agent, each agent's in order."""

    def __init__(self, without: frozenset[str]) -> None:
        self.threads: dict[str, list[Any]] = {}
        self.usage: dict[str, Usage] = {}
        self.inputs: dict[str, Content] = {}
        self.calls: dict[CallId, dict[str, Any]] = {}
        self._decisions: dict[str, dict[str, Any]] = {}
        self._names: dict[AgentPath, str] = {(): ""}
        self._call_counts: dict[str, int] = {}
        self._without = without

    def add_event(self, event: Event) -> None:
        body = event.data
        match body:
            case control.InputAdded():
                self.inputs.setdefault(body.key, body.content)
            case progress.TurnStarted():
                said = body.content if body.content is not None else self._inputs_of(body.inputs)
                self._add_fact(event, "turn", agent=body.agent, said=said)
            case progress.StepStarted():
                self._add_fact(event, "step", number=body.number, said=self._inputs_of(body.inputs))
            case progress.MessageCompleted():
                self._add_fact(
                    event, "answer", content=self._without_call_ids(body.content), cut=body.cut, stop=body.stop
                )
            case monitor.UsageRecorded():
                name = self._agent_name(event.path)
                self.usage[name] = self.usage.get(name, Usage()) + body.usage
            case progress.ToolCalled():
                self._add_call(event, body)
            case progress.ToolCompleted() | progress.ToolFailed():
                if body.result.call in self.calls and body.result.call not in self._without:
                    changed = msgspec.structs.replace(body.result, call=CallId(""))
                    self.calls[body.result.call]["result"] = changed
            case _:
                self._add_lifecycle(event)

    def _add_lifecycle(self, event: Event) -> None:
        body = event.data
        match body:
            case progress.SubagentStarted():
                self._names[*event.path, body.child] = self._child_name(body)
                self._add_fact(event, "child", agent=body.agent, said=body.content)
            case progress.SubagentCompleted():
                self._add_fact(event, "child ended", text=body.text, failed=body.failed, stop=body.stop)
            case progress.TurnCompleted():
                self._add_turn_end(event, body, stop=body.stop, limit=body.limit)
            case progress.TurnFailed():
                self._add_turn_end(event, body, code=body.code, message=body.message)
            case progress.TurnCancelled() | progress.TurnInterrupted():
                self._add_turn_end(event, body, note=body.note)
            case context.ContextCompacted():
                self._add_fact(event, "compacted", summary=body.summary)
            case control.Handoff():
                self._add_fact(event, "handoff", source=body.source, target=body.target)
            case _:
                self._add_decision(event)

    def _add_decision(self, event: Event) -> None:
        body = event.data
        match body:
            case control.ApprovalRequested():
                self._open_decision(
                    body.approval, body.call.id, rule=body.rule, reason=body.reason, arguments=body.digest
                )
            case control.QuestionAsked() if body.kind == "question":
                self._open_decision(body.question, body.call, text=body.text, options=body.options)
            case control.ApprovalResolved():
                self._close_decision(
                    body.approval, said=body.decision, edit=body.edit, scope=body.scope, words=body.message
                )
            case control.ApprovalExpired():
                self._close_decision(body.approval, said="expired")
            case control.QuestionAnswered():
                self._close_decision(body.question, said=body.answer)
            case _:
                return

    def _add_turn_end(self, event: Event, body: Any, **facts: Any) -> None:
        self._add_fact(event, body.type, text=body.text, usage=_usage_fields(body.usage), **facts)

    def _add_fact(self, event: Event, what: str, **facts: Any) -> None:
        self.threads.setdefault(self._agent_name(event.path), []).append({"what": what, **facts})

    def _add_call(self, event: Event, body: progress.ToolCalled) -> None:
        name = self._agent_name(event.path)
        number = self._call_counts[name] = self._call_counts.get(name, 0) + 1
        call = body.call
        fact: dict[str, Any] = {
            "what": "call",
            "as": f"{name}/{number}",
            "tool": call.name,
            "arguments": call.arguments,
            "raw": call.raw,
            "asked": [],
        }
        self.calls[call.id] = fact
        self.threads.setdefault(name, []).append(fact)

    def _open_decision(self, id: str, call: CallId | None, **facts: Any) -> None:
        self._decisions[id] = facts
        if call is not None and call in self.calls:
            self.calls[call]["asked"].append(facts)

    def _close_decision(self, id: str, **facts: Any) -> None:
        decision = self._decisions.get(id)
        if decision is not None and "said" not in decision:
            decision.update(facts)

    def _inputs_of(self, keys: Sequence[str]) -> list[Content]:
        return [self.inputs.get(key, ()) for key in keys]

    def _without_call_ids(self, content: Content) -> list[Any]:
        return [{"type": "call"} if isinstance(part, CallRef) else part for part in content]

    def _child_name(self, body: progress.SubagentStarted) -> str:
        call = self.calls.get(body.call)
        ordinal = body.child.partition("-")[2].partition("-")[2] or "1"
        return f"{call['as'] if call else '?'}.{ordinal}"

    def _agent_name(self, path: AgentPath) -> str:
        return self._names.get(path, "/".join(path))


def _usage_fields(usage: Usage) -> dict[str, Any]:
    """Return every field: an encoder omits those with their default."""
    return msgspec.structs.asdict(usage)
