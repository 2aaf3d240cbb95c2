"""Run the tool calls of one answer, each to one result: concurrently, and in order where they use the same files."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.eviction import limit_result
from vaka.core.loop.file_order import FileOrder
from vaka.core.loop.lost_calls import may_rerun, resolve_lost_call, restart_call
from vaka.core.loop.permission import PermittedCall, PreparedCall
from vaka.core.loop.prepare import prepare_call, validate_changed
from vaka.core.loop.run_tool import run_after_tool, run_tool, tool_started_event
from vaka.core.loop.stop import TurnStopped, run_together
from vaka.core.loop.tool_result import failed_result, result_event
from vaka.core.loop.wait import DecisionPending
from vaka.core.types.errors import Suspended, describe_failure
from vaka.core.types.event import Body
from vaka.core.types.ids import CallId, DecisionId
from vaka.core.types.message import ToolResult
from vaka.core.types.state import OpenCall
from vaka.core.types.tool import Deny


class CallJob:
    """The state of one call until it has its result."""

    def __init__(self, open_call: OpenCall, place: int = 0) -> None:
        self.open_call, self.place = open_call, place
        self.prepared_call: PreparedCall | None = None
        self.permitted_call: PermittedCall | None = None
        self.has_started = False
        self.decision_id = open_call.approval
        """The last decision that the call has waited for."""
        self.outcome_unknown = False


async def run_calls(turn: Turn, calls: Sequence[OpenCall]) -> str:
    """Run every call to its result; return the name of the limit that one of them has reached, if any.

    The last result, and one that ends the turn, is deferred. Raises ``Suspended`` when a call waits for a person.
    """
    batch = CallBatch(turn, len(calls))
    first, last = list[Body](), list[Body]()
    jobs: list[CallJob] = []
    for place, open_call in enumerate(calls):
        job = CallJob(msgspec.structs.replace(open_call), place)  # the fold changes the open calls of the state
        end = await batch.admit(job, first)
        if end is None:
            jobs.append(job)
        else:
            (last if batch.limit else first).append(result_event(await limit_result(turn, open_call.call.name, end)))
    await batch.run(jobs, first)
    turn.stop.check()
    if batch.awaited_decisions:
        raise Suspended(batch.awaited_decisions)
    turn.log.defer(turn.scope, *last)
    return batch.limit


class CallBatch:
    """Runs ``size`` calls of one step concurrently; those that use the same files run in the order of their places."""

    def __init__(self, turn: Turn, size: int = 1, rename_event: Callable[[CallId], Body] | None = None) -> None:
        self.turn = turn
        self.permissions = turn.permissions
        self._rename_event = rename_event
        self.awaited_decisions: list[DecisionId] = []
        self.limit = ""
        self._slots: asyncio.Semaphore | None = None
        """Set when there are more calls than may run at once."""
        self._unfinished_count = 0
        self._is_ordered, self._file_order = size > 1, FileOrder()
        self._number_lock = asyncio.Lock()

    async def admit(self, job: CallJob, events: list[Body]) -> ToolResult | None:
        """Prepare and judge a call; append to ``events`` what must be written first. A result ends the call."""
        open_call = job.open_call
        has_returned = open_call.phase == "returned" and open_call.result is not None
        if open_call.phase == "started" and not may_rerun(open_call, self.turn.tools.get(open_call.call.name)):
            job.outcome_unknown = True
        if has_returned or job.outcome_unknown:
            self._note_files(job)
            return None
        repeated = self._check_repeats(open_call) if open_call.phase == "called" else None
        return repeated or await self._prepare(job) or await self._ask_middleware(job) or self._decide(job, events)

    async def run(self, jobs: list[CallJob], events: list[Body]) -> None:
        """Write the start of as many calls as may run now in one append, then run all to their results."""
        turn, most = self.turn, self.turn.limits.max_tool_concurrency
        self._slots = asyncio.Semaphore(most) if len(jobs) > most else None
        ready = [job for job in jobs if job.permitted_call and not self._file_order.is_held(job.place)]
        for job in ready[:most]:
            self._start(job, events)
        if not jobs:
            turn.log.defer(turn.scope, *events)
            return
        await turn.log.append(turn.scope, *events)
        self._unfinished_count = len(jobs)
        works = [self._finish_job(job) for job in jobs]
        await (run_together(works) if len(works) > 1 else works[0])

    async def run_one(self, job: CallJob, events: list[Body]) -> ToolResult:
        """Write the start of one call, run it, and return its result, which is not written."""
        turn = self.turn
        self._start(job, events)
        if job.permitted_call is not None and job.permitted_call.tool.spec.effect == "read":
            turn.log.defer(turn.scope, *events)
        else:
            await turn.log.append(turn.scope, *events)
        return await self._result_of(job)

    def _start(self, job: CallJob, events: list[Body]) -> None:
        if job.permitted_call is not None:
            events.append(tool_started_event(self.turn, job.permitted_call, job.open_call))
            job.has_started = True

    async def _finish_job(self, job: CallJob) -> None:
        has_result = False
        try:
            result = await limit_result(self.turn, job.open_call.call.name, await self._result_of(job))
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
            self._file_order.end(job.place, has_result=has_result)

    async def _result_of(self, job: CallJob) -> ToolResult:
        try:
            if job.open_call.phase == "returned" and job.open_call.result is not None:
                return await run_after_tool(self.turn, job.open_call.call, job.open_call.result)
            found = await self._resolve_lost(job) if job.outcome_unknown else None
            return found or await self._run_when_permitted(job)
        except TurnStopped as stopped:
            if self.turn.stop.reason is None:  # no budget for a model call of a middleware: that ends the turn
                raise
            return job.open_call.sealed_result(
                "interrupted" if stopped.kind == "interrupted" else "cancelled", f"Stopped: {stopped}."
            )

    async def _run_when_permitted(self, job: CallJob) -> ToolResult:
        while job.permitted_call is None or (not job.has_started and self._file_order.is_held(job.place)):
            end = await (self._await_person(job) if job.permitted_call is None else self._await_earlier(job))
            if end is not None:
                return end
        if self._slots is None:
            return await self._start_tool(job, job.permitted_call)
        async with self._slots:
            return await self._start_tool(job, job.permitted_call)

    async def _start_tool(self, job: CallJob, permitted: PermittedCall) -> ToolResult:
        if not job.has_started:
            self.turn.stop.check()
            await self.turn.log.append(self.turn.scope, tool_started_event(self.turn, permitted, job.open_call))
        return await run_tool(self.turn, permitted, job.open_call)

    async def _prepare(self, job: CallJob) -> ToolResult | None:
        """Parse, validate, run ``before_tool``. The error of a middleware becomes the result of the call."""
        if self.turn.middleware.before_tool:
            found = (await asyncio.gather(prepare_call(self.turn, job.open_call), return_exceptions=True))[0]
        else:
            found = await prepare_call(self.turn, job.open_call)
        if isinstance(found, TurnStopped):
            raise found
        if isinstance(found, BaseException):
            return failed_result(job.open_call.call.id, "middleware", describe_failure(found)[1])
        if isinstance(found, ToolResult):
            return found
        job.prepared_call = found
        return None

    async def _ask_middleware(self, job: CallJob) -> ToolResult | None:
        """Let middlewares decide about a call that a person would be asked about; a result ends the call."""
        turn, prepared = self.turn, job.prepared_call
        if prepared is None or not turn.middleware.decide_approval:
            return None
        request = self.permissions.find_request(prepared, job.decision_id)
        verdict = await turn.middleware.run_decide_approval(turn, request) if request is not None else None
        if isinstance(verdict, Deny):
            return failed_result(prepared.call.id, "denied", verdict.reason or "a middleware refused this call")
        if verdict is not None:
            arguments = prepared.call.arguments if verdict.arguments is None else verdict.arguments
            changed = msgspec.structs.replace(prepared.call, arguments=arguments)
            found = validate_changed(prepared.tool, changed, msgspec.structs.replace(verdict, arguments=None))
            if isinstance(found, ToolResult):
                return found
            job.prepared_call = found
        return None

    def _decide(self, job: CallJob, events: list[Body]) -> ToolResult | None:
        """Ask the policy and earlier decisions; without a result the call is permitted, or waits for a decision."""
        assert job.prepared_call is not None  # noqa: S101  # set by _prepare
        found = self.permissions.decide(job.prepared_call, job.decision_id, events)
        if isinstance(found, PermittedCall):
            job.permitted_call = found
        elif isinstance(found, ToolResult):
            return found
        else:
            job.decision_id = found
        self._note_files(job)  # again after each decision: a person may have changed the arguments
        return None

    def _note_files(self, job: CallJob) -> None:
        known = job.permitted_call or job.prepared_call
        call = known.call if known is not None else job.open_call.call
        tool = self.turn.tools.get(call.name) if self._is_ordered else None
        if tool is not None:
            self._file_order.add(job.place, self.turn.env.find_file_use(tool, call.arguments))

    async def _await_person(self, job: CallJob) -> ToolResult | None:
        """Wait for the decision on a call and judge it again; ``None`` when it may go on."""
        turn, permissions = self.turn, self.permissions
        assert job.decision_id is not None  # noqa: S101  # only such jobs come here
        grants = list(turn.state.grants)
        await turn.decision_waits.wait(
            job.decision_id, lambda: turn.state.grants == grants and not permissions.asking_disabled
        )
        return await self._decide_again(job)

    async def _await_earlier(self, job: CallJob) -> ToolResult | None:
        """Wait for an earlier call that uses the same files, and judge the call again; ``None`` when it may go on."""
        with self.turn.stop.cancellable():
            if not await self._file_order.wait_for_holder(job.place):
                raise DecisionPending  # of the earlier call; this one stays open too
        job.permitted_call = None
        return await self._decide_again(job)

    async def _decide_again(self, job: CallJob) -> ToolResult | None:
        asked: list[Body] = []
        end = await self._ask_middleware(job) or self._decide(job, asked)
        if asked:
            await self.turn.log.append(self.turn.scope, *asked)
        return end

    async def _resolve_lost(self, job: CallJob) -> ToolResult | None:
        """Ask a person for the outcome of a lost ``once`` call; ``None`` when it is to run as a new call."""
        turn, tool = self.turn, self.turn.tools.get(job.open_call.call.name)
        found = await resolve_lost_call(turn.decision_waits, job.open_call, tool)
        if found is not None:
            return found
        async with self._number_lock:  # two concurrent restarts must not get the same number
            events, fresh = restart_call(turn.log, job.open_call)
            if self._rename_event is not None:
                events.append(self._rename_event(fresh.call.id))
            await turn.log.append(turn.scope, *events)
        job.open_call = fresh
        return await self._prepare(job) or await self._decide_again(job)

    def _check_repeats(self, open_call: OpenCall) -> ToolResult | None:
        """Fail a call that equals one in each of the last steps; a call of ``stop_repeats`` steps ends the turn."""
        limits, name = self.turn.limits, open_call.call.name
        tool = self.turn.tools.get(name) if open_call.streak >= limits.warn_repeats else None
        if tool is None or tool.spec.poll:
            return None
        if open_call.streak >= limits.stop_repeats:
            self.limit = "repeated_call"
        text = f"this is step {open_call.streak} in a row that calls {name} with the same arguments; do something else"
        return failed_result(open_call.call.id, "repeated", text)
