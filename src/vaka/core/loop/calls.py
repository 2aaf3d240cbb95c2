"""The calls of one step: each goes through its states to one result, at the same time as the others.

``CallBatch`` has one method for each state of a call. A call enters in the state that the log has of it.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

import msgspec

from vaka.core.loop.blobs import offload_result
from vaka.core.loop.call_context import CallContext
from vaka.core.loop.context import Turn
from vaka.core.loop.permission import PermittedCall, PreparedCall
from vaka.core.loop.run_tool import run_in_context, tool_started_event
from vaka.core.loop.stop import TurnStopped, run_together
from vaka.core.loop.wait import DecisionPending, may_rerun, resolve_lost_call, restart_call
from vaka.core.ports.tool import Tool
from vaka.core.types.control import ApprovalRequested, QuestionAsked
from vaka.core.types.errors import Suspended, describe_failure
from vaka.core.types.event import Body
from vaka.core.types.ids import CallId, DecisionId
from vaka.core.types.message import FailureReason, ToolCall, ToolResult
from vaka.core.types.progress import ToolCalled, ToolCompleted, ToolFailed, ToolReturned, ToolStarted
from vaka.core.types.state import OpenCall
from vaka.core.types.tool import Allow, Ask, Deny, FileUse, InvalidArguments
from vaka.core.types.tool_result import as_result, failed_result, result_event

TRUNCATED_TEXT = (
    "This call was not run: the answer ended before it was whole, so part of the call may be missing. "
    "Make the call again, shorter or in several steps."
)


class OpenState(msgspec.Struct):
    """The state of a call without a result."""

    place: int
    """Its place among the calls of the step."""
    open_call: OpenCall
    events: ClassVar[tuple[type[Body], ...]] = ()
    """The events with which a call comes into this state; without one the log does not have the state."""


class Requested(OpenState):
    """The model asks for it."""

    events = (ToolCalled,)


class Asked(OpenState):
    """A person is asked whether it may run; the turn may be suspended meanwhile."""

    events = (ApprovalRequested,)

    prepared: PreparedCall
    decision: DecisionId


class Permitted(OpenState):
    """It may run, once a slot is free and earlier calls that use the same files have ended."""

    prepared: PreparedCall
    permitted: PermittedCall
    decision: DecisionId | None
    """The last decision that it has waited for."""


class Started(OpenState):
    """The tool runs. Its start was written before."""

    events = (ToolStarted,)

    permitted: PermittedCall


class Returned(OpenState):
    """The tool has returned a result, which ``after_tool`` has not seen."""

    events = (ToolReturned,)

    call: ToolCall
    result: ToolResult


class Lost(OpenState):
    """It ran in a process that has ended, and may not run twice."""

    events = (QuestionAsked,)


class Done(msgspec.Struct):
    """It has its result."""

    events: ClassVar[tuple[type[Body], ...]] = (ToolCompleted, ToolFailed)
    result: ToolResult


Open: TypeAlias = Requested | Asked | Permitted | Started | Returned | Lost
CallState: TypeAlias = Open | Done


async def run_calls(turn: Turn, calls: Sequence[OpenCall]) -> str:
    """Run every call to its result; return the name of the limit that a call has reached, if any.

    The last result, or a result that ends the turn, is deferred. Raises ``Suspended`` if a call waits for a person.
    """
    batch = CallBatch(turn, len(calls))
    first, last = list[Body](), list[Body]()
    states: list[Open] = []
    for place, open_call in enumerate(calls):
        state = await batch.admit(open_call, first, place)
        if isinstance(state, Done):
            result = await _limit_result(turn, open_call.call.name, state.result)
            (last if batch.limit else first).append(result_event(result))
        else:
            states.append(state)
    await batch.run(states, first)
    turn.stop.check()
    if batch.awaited_decisions:
        raise Suspended(batch.awaited_decisions)
    turn.log.defer(turn.scope, *last)
    return batch.limit


class CallBatch:
    """Runs ``size`` calls of one step concurrently; calls that use the same files run in the order of their places."""

    def __init__(self, turn: Turn, size: int = 1, rename_event: Callable[[CallId], Body] | None = None) -> None:
        self.turn = turn
        self.permissions = turn.permissions
        self._rename_event = rename_event
        self.awaited_decisions: list[DecisionId] = []
        self.limit = ""
        self._slots: asyncio.Semaphore | None = None
        """Set when there are more calls than may run at once."""
        self._unfinished_count = 0
        self._files = FileOrder() if size > 1 else None

    async def admit(self, open_call: OpenCall, events: list[Body], place: int = 0) -> CallState:
        """Return the state of a call at the start of its batch; append to ``events`` what must be written first."""
        state = state_in_log(open_call, self.turn.tools.get(open_call.call.name), place)
        if isinstance(state, Requested):
            return await self.judge(state, events)
        if self._files is not None:
            self._note_files(self._files, place, open_call.call)
        return state

    async def run(self, states: list[Open], events: list[Body]) -> None:
        """Write the start of as many calls as may run now in one append, then run all to their results."""
        turn, most = self.turn, self.turn.limits.max_tool_concurrency
        if not states:
            turn.log.defer(turn.scope, *events)
            return
        self._slots = asyncio.Semaphore(most) if len(states) > most else None
        started = 0
        for index, state in enumerate(states):
            if isinstance(state, Permitted) and started < most and not self._is_held(state):
                states[index], started = self.start(state, events), started + 1
        await turn.log.append(turn.scope, *events)
        self._unfinished_count = len(states)
        works = [self._finish(state) for state in states]
        await (run_together(works) if len(works) > 1 else works[0])

    async def _finish(self, state: Open) -> None:
        """Take a call to its result and write it; the last result of the batch is deferred."""
        has_result = False
        try:
            result = await _limit_result(self.turn, state.open_call.call.name, await self.result_of(state))
            self._unfinished_count -= 1
            if self._unfinished_count == 0:
                self.turn.log.defer(self.turn.scope, result_event(result))
            else:
                await self.turn.log.append(self.turn.scope, result_event(result))
            has_result = True
        except DecisionPending as pending:
            self.awaited_decisions.extend(pending.decisions)
            self._unfinished_count = -1  # the turn will suspend: no later write would take a deferred result
        finally:
            if self._files is not None:
                self._files.end(state.place, has_result=has_result)

    async def result_of(self, state: CallState) -> ToolResult:
        """Take a call through its states to its result."""
        while not isinstance(state, Done):
            open_call = state.open_call
            try:
                state = await self._advance(state)
            except TurnStopped as stopped:
                if self.turn.stop.reason is None:  # no budget for a model call of a middleware: that ends the turn
                    raise
                reason: FailureReason = "interrupted" if stopped.kind == "interrupted" else "cancelled"
                return open_call.sealed_result(reason, f"Stopped: {stopped}.")
        return state.result

    async def _advance(self, state: Open) -> CallState:
        match state:
            case Requested():
                return await self.judge(state)
            case Asked():
                return await self.await_decision(state)
            case Permitted() if self._is_held(state):
                return await self.await_files(state)
            case Permitted() | Started():
                if self._slots is None:
                    return await self._run(state)
                async with self._slots:
                    return await self._run(state)
            case Returned():
                return await self.pass_on(state)
            case Lost():
                return await self.resolve_lost(state)

    async def _run(self, state: Permitted | Started) -> CallState:
        if isinstance(state, Permitted):
            events: list[Body] = []
            self.turn.stop.check()
            state = self.start(state, events)
            await self.turn.log.append(self.turn.scope, *events)
        returned = await self.run_tool(state)
        return returned if isinstance(returned, Done) else await self.pass_on(returned)

    # One method for each state

    async def judge(self, state: Requested, first: list[Body] | None = None) -> Asked | Permitted | Done:
        """Requested: parse and validate the arguments, run ``before_tool``, and ask the policy."""
        open_call, turn = state.open_call, self.turn
        if open_call.streak >= turn.limits.warn_repeats and (repeated := self._check_repeats(open_call)) is not None:
            return Done(repeated)
        prepare = self._prepare if turn.middleware.before_tool else prepare_call
        prepared = await prepare(turn, open_call)
        if isinstance(prepared, ToolResult):
            return Done(prepared)
        return await self._decide(state, prepared, open_call.approval, first)

    async def await_decision(self, state: Asked) -> Asked | Permitted | Done:
        """Asked: wait until a person has decided, or a grant makes that unnecessary, and judge the call again."""
        turn, permissions = self.turn, self.permissions
        grants = list(turn.state.grants)
        await turn.decision_waits.wait(
            state.decision, lambda: turn.state.grants == grants and not permissions.asking_disabled
        )
        return await self._decide(state, state.prepared, state.decision)

    async def await_files(self, state: Permitted) -> Asked | Permitted | Done:
        """Permitted: wait for an earlier call that uses the same files, and judge the call again."""
        assert self._files is not None  # noqa: S101  # a call is held only by another one
        with self.turn.stop.cancellable():
            if not await self._files.wait_for_holder(state.place):
                raise DecisionPending  # of the earlier call; this one stays open too
        return await self._decide(state, state.prepared, state.decision)

    def start(self, state: Permitted, events: list[Body]) -> Started:
        """Permitted: the start is written before the tool runs."""
        events.append(tool_started_event(self.turn, state.permitted, state.open_call))
        return Started(state.place, state.open_call, state.permitted)

    async def run_tool(self, state: Started) -> Returned | Done:
        """Started: run the tool; what it returns is written before ``after_tool`` sees it."""
        context = CallContext(self.turn, state.open_call, state.permitted)
        result = await run_in_context(state.permitted, context)
        if not self.turn.middleware.after_tool:
            return Done(result)
        await self.turn.log.append(self.turn.scope, ToolReturned(result=result))
        return Returned(state.place, state.open_call, state.permitted.call, result)

    async def pass_on(self, state: Returned) -> Done:
        """Returned: run ``after_tool``."""
        result = await self.turn.middleware.run_after_tool(self.turn, state.call, state.result)
        return Done(await offload_result(self.turn.log, result))

    async def resolve_lost(self, state: Lost) -> Requested | Done:
        """Lost: ask a person for the outcome. A call that did not happen is requested again, with a new id and key."""
        turn, tool = self.turn, self.turn.tools.get(state.open_call.call.name)
        found = await resolve_lost_call(turn.decision_waits, state.open_call, tool)
        if found is not None:
            return Done(found)
        events, fresh = restart_call(turn.log, state.open_call)
        if self._rename_event is not None:
            events.append(self._rename_event(fresh.call.id))
        await turn.log.append(turn.scope, *events)  # takes them before it waits: another restart has the next number
        return Requested(state.place, fresh)

    # What they share

    def _check_repeats(self, open_call: OpenCall) -> ToolResult | None:
        """Fail a call that equals one in each of the last steps; a call of ``stop_repeats`` steps ends the turn."""
        name = open_call.call.name
        tool = self.turn.tools.get(name)
        if tool is None or tool.spec.poll or open_call.phase != "called":
            return None
        if open_call.streak >= self.turn.limits.stop_repeats:
            self.limit = "repeated_call"
        text = f"this is step {open_call.streak} in a row that calls {name} with the same arguments; do something else"
        return failed_result(open_call.call.id, "repeated", text)

    @staticmethod
    async def _prepare(turn: Turn, open_call: OpenCall) -> PreparedCall | ToolResult:
        """Prepare a call. The error of a middleware becomes the result of the call."""
        found = (await asyncio.gather(prepare_call(turn, open_call), return_exceptions=True))[0]
        if isinstance(found, TurnStopped):
            raise found
        if isinstance(found, BaseException):
            return failed_result(open_call.call.id, "middleware", describe_failure(found)[1])
        return found

    async def _decide(
        self,
        state: OpenState,
        prepared: PreparedCall,
        decision: DecisionId | None,
        first: list[Body] | None = None,
    ) -> Asked | Permitted | Done:
        """Ask middlewares, the policy and earlier decisions. What must be written first goes to ``first``, if given."""
        if self.turn.middleware.decide_approval:
            changed = await self._ask_middleware(prepared, decision)
            if isinstance(changed, ToolResult):
                return Done(changed)
            prepared = changed
        events = [] if first is None else first
        permission = self.permissions.decide(prepared, decision, events)
        if isinstance(permission, ToolResult):
            return Done(permission)
        call = permission.call if isinstance(permission, PermittedCall) else prepared.call
        if self._files is not None:  # again after each decision: a person may have changed the arguments
            self._note_files(self._files, state.place, call)
        if first is None and events:
            await self.turn.log.append(self.turn.scope, *events)
        if isinstance(permission, PermittedCall):
            return Permitted(state.place, state.open_call, prepared, permission, decision)
        return Asked(state.place, state.open_call, prepared, permission)

    async def _ask_middleware(self, prepared: PreparedCall, decision: DecisionId | None) -> PreparedCall | ToolResult:
        """Let middlewares decide about a call that a person would be asked about."""
        request = self.permissions.find_request(prepared, decision)
        verdict = await self.turn.middleware.run_decide_approval(self.turn, request) if request is not None else None
        if verdict is None:
            return prepared
        if isinstance(verdict, Deny):
            return failed_result(prepared.call.id, "denied", verdict.reason or "a middleware refused this call")
        arguments = prepared.call.arguments if verdict.arguments is None else verdict.arguments
        changed = msgspec.structs.replace(prepared.call, arguments=arguments)
        return _validate_changed(prepared.tool, changed, msgspec.structs.replace(verdict, arguments=None))

    def _is_held(self, state: Permitted) -> bool:
        return self._files is not None and self._files.is_held(state.place)

    def _note_files(self, files: "FileOrder", place: int, call: ToolCall) -> None:
        tool = self.turn.tools.get(call.name)
        if tool is not None:
            files.add(place, self.turn.env.find_file_use(tool, call.arguments))


def state_in_log(open_call: OpenCall, tool: Tool | None, place: int = 0) -> Requested | Returned | Lost:
    """Return the state of a call that the log has: after a crash, a decision of a person, or in the running step."""
    open_call = msgspec.structs.replace(open_call)  # the fold changes the open calls of the state
    if open_call.phase == "returned" and open_call.result is not None:
        return Returned(place, open_call, open_call.call, open_call.result)
    if open_call.phase == "started" and not may_rerun(open_call, tool):
        return Lost(place, open_call)
    return Requested(place, open_call)


async def prepare_call(turn: Turn, open_call: OpenCall) -> PreparedCall | ToolResult:
    """Parse and validate a call and run ``before_tool``; a returned result ends the call."""
    tool, call = turn.tools.get(open_call.call.name), open_call.call
    if tool is None:
        return failed_result(call.id, "unknown_tool", _unknown_tool_text(turn, call.name))
    if not turn.env.policy.visible(tool.spec):
        return failed_result(call.id, "denied", f"{call.name} is not allowed here")
    if call.truncated:
        return failed_result(call.id, "invalid_arguments", TRUNCATED_TEXT)
    unread = call.raw and not call.repaired
    if unread or call.id in turn.state.open:  # a call parsed in this step is known to be valid
        parsed = tool.parse(call.raw if unread else call.arguments)
        if isinstance(parsed, InvalidArguments):
            return failed_result(call.id, "invalid_arguments", parsed.message)
        if unread:
            raw = call.raw if parsed.repaired else ""
            call = msgspec.structs.replace(call, arguments=parsed.value, raw=raw, repaired=parsed.repaired)
    chain = turn.middleware
    changed, end, verdict = await chain.run_before_tool(turn, call) if chain.before_tool else (call, None, None)
    if isinstance(end, Deny):
        return failed_result(call.id, "denied", end.reason or "a middleware refused this call")
    if isinstance(end, ToolResult):
        return as_result(call.id, end)
    turn.admitted_calls[call.name] += 1
    if open_call.phase == "started" or changed.arguments == call.arguments:
        return PreparedCall(tool, call, verdict)  # a started call runs again with the same arguments
    return _validate_changed(tool, changed, verdict)


def _validate_changed(tool: Tool, call: ToolCall, verdict: Ask | Allow | None) -> PreparedCall | ToolResult:
    """Return the prepared call with arguments that a middleware has changed, or the result that refuses them."""
    parsed = tool.parse(call.arguments)
    if isinstance(parsed, InvalidArguments):
        return failed_result(call.id, "invalid_arguments", parsed.message)
    return PreparedCall(tool, msgspec.structs.replace(call, arguments=parsed.value), verdict)


def _unknown_tool_text(turn: Turn, name: str) -> str:
    names = ", ".join(sorted(name for name, tool in turn.tools.items() if turn.env.policy.visible(tool.spec)))
    return f"there is no tool {name!r}; the tools are: {names}" if names else f"there is no tool {name!r}"


class FileOrder:
    """Holds a call until the earlier calls of its step that use the same files have their results.

    A call is known by its place among the calls of the step. One without a ``FileUse`` is never held and holds none.
    """

    def __init__(self) -> None:
        self._uses: dict[int, FileUse] = {}
        """The files that the calls without a result use."""
        self._ends: dict[int, asyncio.Event] = {}

    def add(self, place: int, use: FileUse | None) -> None:
        """Set which files a call uses; again when a person has changed its arguments."""
        if use is not None:
            self._uses[place] = use
            self._ends.setdefault(place, asyncio.Event())

    def end(self, place: int, *, has_result: bool) -> None:
        """Note that a call has ended; without a result it still holds the later ones: the turn ends or is suspended."""
        if place in self._ends:
            self._ends[place].set()
            if has_result:
                del self._uses[place]

    def is_held(self, place: int) -> bool:
        """Return whether an earlier call that uses the same files has no result."""
        return self._holder_of(place) is not None

    async def wait_for_holder(self, place: int) -> bool:
        """Wait until the call that holds this one has ended, and return whether it has a result."""
        holder = self._holder_of(place)
        if holder is None:
            return True
        await self._ends[holder].wait()
        return holder not in self._uses

    def _holder_of(self, place: int) -> int | None:
        """Return the last earlier call that uses the same files and has no result."""
        use = self._uses.get(place)
        if use is None:
            return None
        for earlier in range(place - 1, -1, -1):
            other = self._uses.get(earlier)
            if other is not None and other.conflicts_with(use):
                return earlier
        return None


async def _limit_result(turn: Turn, tool: str, result: ToolResult) -> ToolResult:
    """Return a result as the model gets it: a long one in part."""
    limit = turn.recipe.result_limit
    return result if limit is None else await limit.limit_result(turn, tool, result)
