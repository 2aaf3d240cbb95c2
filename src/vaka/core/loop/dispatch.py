"""The calls of one answer: judged in order, run side by side, each with exactly one result."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from vaka.core.loop import recover
from vaka.core.loop.approval import awaited, needless, same, unasked
from vaka.core.loop.execute import Left, after, execute, started
from vaka.core.loop.judge import Candidate, Ready, consider, judge
from vaka.core.loop.middleware import describe
from vaka.core.loop.result import as_result, failure
from vaka.core.loop.scope import Turn
from vaka.core.loop.stop import Stopped
from vaka.core.session.state import OpenCall
from vaka.core.types.errors import Suspended
from vaka.core.types.event import Body
from vaka.core.types.ids import CallId, DecisionId
from vaka.core.types.message import ToolResult
from vaka.core.types.progress import ToolCompleted, ToolFailed


class _Job:
    """One call on its way to its result."""

    def __init__(self, open: OpenCall) -> None:
        self.open = open
        self.candidate: Candidate | None = None
        self.ready: Ready | None = None
        self.begun = False
        self.asking: DecisionId | None = None
        self.lost = False


async def settle(turn: Turn, calls: Sequence[OpenCall]) -> str:
    """See every call through to its result; return the name of the limit that one of them has reached, if so.

    The last result is left for the next write, and so is one that ends the turn. Raises ``Suspended`` when only people
    can go on.
    """
    crew = _Crew(turn)
    first: list[Body] = []
    last: list[Body] = []
    jobs: list[_Job] = []
    for open in calls:
        job = _Job(msgspec.structs.replace(open))
        end = await crew.admit(job, first)
        if end is None:
            jobs.append(job)
        else:
            (last if crew.limit else first).append(_ended(end))
    await crew.run(jobs, first)
    turn.stop.check()
    if crew.left:
        raise Suspended(crew.left)
    turn.log.later(turn.at, *last)
    return crew.limit


async def settle_one(turn: Turn, open: OpenCall, renamed: Callable[[CallId], Body]) -> ToolResult | Left:
    """See one call of a script through; its result is left for the next write.

    What only reads need not be in the log before it runs: when it is lost, nothing is lost. ``renamed`` says in the log
    that the call goes on under another id.
    """
    crew, job = _Crew(turn, renamed), _Job(msgspec.structs.replace(open, streak=1))  # the breaker is for models
    first: list[Body] = []
    result = await crew.admit(job, first) or await crew.run_one(job, first)
    if not isinstance(result, Left):
        turn.log.later(turn.at, _ended(result))
    return result


class _Crew:
    """The jobs of one step."""

    def __init__(self, turn: Turn, renamed: Callable[[CallId], Body] | None = None) -> None:
        self.turn, self._renamed = turn, renamed
        self.left: list[DecisionId] = []
        self.limit = ""
        self._slots: asyncio.Semaphore | None = None
        """Needed when there are more calls than may run at once."""
        self._open = 0
        self._numbers = asyncio.Lock()

    async def admit(self, job: _Job, first: list[Body]) -> ToolResult | None:
        """Find out what a call needs; put down what must be written first. A result means it is already over."""
        open = job.open
        if open.phase == "returned" and open.result is not None:
            return None
        if open.phase == "started" and not recover.again(self.turn, open):
            job.lost = True
            return None
        repeated = self._repeated(open) if open.phase == "called" else None
        if repeated is not None:
            return repeated
        end = await self._consider(job)
        return end if end is not None else self._judge(job, first)

    async def run(self, jobs: list[_Job], first: list[Body]) -> None:
        """Begin as many as may run at once in one write, then see all of them through."""
        turn, most = self.turn, self.turn.recipe.limits.max_tool_concurrency
        self._slots = asyncio.Semaphore(most) if len(jobs) > most else None
        for job in [job for job in jobs if job.ready][:most]:
            assert job.ready is not None  # noqa: S101  # just selected
            first.append(started(turn, job.ready, job.open))
            job.begun = True
        if not jobs:
            turn.log.later(turn.at, *first)
            return
        await turn.log.append(turn.at, *first)
        self._open = len(jobs)
        if len(jobs) == 1:
            await self._see_through(jobs[0])
            return
        tasks = [asyncio.create_task(self._see_through(job)) for job in jobs]
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            raise
        for error in [task.exception() for task in tasks]:  # all are looked at: none complains later
            if error is not None:
                raise error

    async def run_one(self, job: _Job, first: list[Body]) -> ToolResult | Left:
        """Begin one call, and return its result unwritten."""
        turn = self.turn
        if job.ready is not None:
            first.append(started(turn, job.ready, job.open))
            job.begun = True
        if job.ready is not None and job.ready.tool.spec.effect == "read":
            turn.log.later(turn.at, *first)
        else:
            await turn.log.append(turn.at, *first)
        return await self._result(job)

    async def _see_through(self, job: _Job) -> None:
        result = await self._result(job)
        if isinstance(result, Left):
            self.left.extend(result.decisions)
            self._open = -1  # the last result must be written: nothing follows it here
            return
        self._open -= 1
        if self._open == 0:
            self.turn.log.later(self.turn.at, _ended(result))
        else:
            await self.turn.log.append(self.turn.at, _ended(result))

    async def _result(self, job: _Job) -> ToolResult | Left:
        try:
            if job.open.phase == "returned" and job.open.result is not None:
                return await after(self.turn, job.open.call, job.open.result)
            if job.lost:
                found = await self._find_out(job)
                if found is not None:
                    return found
            return await self._go(job)
        except Stopped as stopped:
            if self.turn.stop.reason is None:  # no budget pays for what a middleware asks: the turn ends with that
                raise
            return job.open.sealed(
                "interrupted" if stopped.why == "interrupted" else "cancelled", f"Stopped: {stopped}."
            )

    async def _go(self, job: _Job) -> ToolResult | Left:
        while job.ready is None:
            end = await self._person(job)
            if end is not None:
                return end
        if self._slots is None:
            return await self._start(job, job.ready)
        async with self._slots:
            return await self._start(job, job.ready)

    async def _start(self, job: _Job, ready: Ready) -> ToolResult | Left:
        if not job.begun:
            self.turn.stop.check()
            await self.turn.log.append(self.turn.at, started(self.turn, ready, job.open))
        return await execute(self.turn, ready, job.open)

    async def _consider(self, job: _Job) -> ToolResult | None:
        """Read, validate, before_tool. A middleware that fails here keeps the tool from running."""
        if self.turn.chain.has("before_tool"):
            found = (await asyncio.gather(consider(self.turn, job.open), return_exceptions=True))[0]
        else:
            found = await consider(self.turn, job.open)
        if isinstance(found, Stopped):
            raise found
        if isinstance(found, BaseException):
            return failure(job.open.call.id, "middleware", describe(found)[1])
        if isinstance(found, ToolResult):
            return found
        job.candidate = found
        return None

    def _judge(self, job: _Job, first: list[Body]) -> ToolResult | None:
        """Ask the rules; ``first`` gets the question when a person must decide."""
        assert job.candidate is not None  # noqa: S101  # considered before it is judged
        judged = judge(self.turn, job.candidate)
        if isinstance(judged, ToolResult):
            return judged
        if isinstance(judged, Ready):
            answers = needless(self.turn, job.open.call.id)
            if answers:  # a person may be faster, and say no: it is judged again when this is written
                job.asking = answers[0].approval
                first.extend(answers)
            else:
                job.ready = judged
            return None
        before = job.asking or job.open.approval
        known = self.turn.state.decisions.get(before) if before else None
        if known is not None and known.waiting and not self.turn.refused and same(known.approval, judged):
            job.asking = known.id
        elif self.turn.refused:
            return unasked(judged)
        elif self.turn.env.ask == "deny":
            why = judged.reason or f"{judged.call.name} needs approval"
            return failure(judged.call.id, "denied", f"{why}; nobody can be asked here, so it was not run")
        else:
            job.asking = judged.approval
            first.append(judged)
        return None

    async def _person(self, job: _Job) -> ToolResult | Left | None:
        """Wait for the decision on a call and judge it again; ``None`` when it may go on."""
        turn = self.turn
        assert job.asking is not None and job.candidate is not None  # noqa: S101, PT018  # only such jobs come here
        grants = list(turn.state.grants)
        if not await awaited(turn, job.asking, lambda: turn.state.grants == grants and not turn.refused):
            return Left((job.asking,))
        asked: list[Body] = []
        end = self._judge(job, asked)
        if asked:
            await turn.log.append(turn.at, *asked)
        return end

    async def _find_out(self, job: _Job) -> ToolResult | Left | None:
        """A ``once`` call was lost: let it end, ask what became of it; ``None`` when it runs as a new call."""
        turn = self.turn
        await recover.let_it_end(turn, job.open)
        id = recover.question_id(turn, job.open)
        if id not in turn.state.decisions:
            if turn.env.ask == "deny":
                return recover.unknown(job.open)
            await turn.log.append(turn.at, recover.question(turn, job.open))
        if not await awaited(turn, id):
            return Left((id,))
        what, value = recover.outcome(turn.state.decisions[id])
        if what == "happened":
            return as_result(job.open.call.id, "" if value is None else value)
        if what == "leave":
            return recover.unknown(job.open)
        async with self._numbers:  # two that are repeated at once must not get one number
            bodies, fresh = recover.repeat(turn, job.open)
            await turn.log.append(turn.at, *bodies, *([self._renamed(fresh.call.id)] if self._renamed else ()))
        job.open = fresh
        asked: list[Body] = []
        end = await self._consider(job) or self._judge(job, asked)
        if asked:
            await turn.log.append(turn.at, *asked)
        return end

    def _repeated(self, open: OpenCall) -> ToolResult | None:
        """The breaker: the third equal call in a row is an error, the fifth ends the turn."""
        tool, limits = self.turn.tools.get(open.call.name), self.turn.recipe.limits
        if tool is None or tool.spec.poll or open.streak < limits.warn_repeats:
            return None
        if open.streak >= limits.stop_repeats:
            self.limit = "repeated_call"
        text = f"this is call {open.streak} in a row of {open.call.name} with the same arguments; do something else"
        return failure(open.call.id, "repeated", text)


def _ended(result: ToolResult) -> Body:
    return ToolFailed(result=result) if result.failed else ToolCompleted(result=result)
