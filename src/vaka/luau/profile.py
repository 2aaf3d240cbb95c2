"""Where the time of a script goes, and how much memory it holds."""

import time
from collections.abc import Awaitable, Sequence

from vaka.core.types.ids import JSON
from vaka.luau.pool import Pool
from vaka.luau.program import Program
from vaka.luau.script import Script, Step, Waiting
from vaka.luau.vm import Action, Machine


class Calls:
    """How often the host was asked for one thing, and how many seconds that took together."""

    __slots__ = ("count", "seconds")

    def __init__(self) -> None:
        self.count, self.seconds = 0, 0.0


class Profile:
    """What one run took. Calls that wait at the same time count each for itself: together they may outlast the run."""

    def __init__(self) -> None:
        self.compile_seconds = 0.0
        self.run_seconds = 0.0
        self.vm_seconds = 0.0
        self.steps = 0
        self.memory: int | None = None
        """Bytes the VM held at most at the end of a step; ``None`` for a VM in another process."""
        self.calls: dict[str, Calls] = {}

    def weigh(self, memory: int) -> None:
        """Take note of what a VM holds."""
        self.memory = max(self.memory or 0, memory)

    def lines(self) -> list[str]:
        """Return it for people to read: the calls that took longest first."""
        held = "in a worker" if self.memory is None else f"{self.memory / 1024:.0f} KiB"
        lines = [
            f"compile  {self.compile_seconds * 1e3:.2f} ms",
            f"run      {self.run_seconds * 1e3:.2f} ms",
            f"vm       {self.vm_seconds:.6f} s in {self.steps} step{'' if self.steps == 1 else 's'}",
            f"memory   {held}",
            f"calls    {sum(calls.count for calls in self.calls.values())}",
        ]
        for name, calls in sorted(self.calls.items(), key=lambda item: (-item[1].seconds, item[0])):
            lines.append(f"  {name}  {calls.count} in {calls.seconds * 1e3:.2f} ms")
        return lines


class Weighed(Machine):
    """A machine that says what its VM holds, while it still has one."""

    def __init__(self, pool: Pool, program: Program, profile: Profile) -> None:
        super().__init__(pool, program)
        self._profile = profile

    def run(self, action: Action) -> Step:
        """Make a step; in any thread, one at a time. ``end`` must follow."""
        try:
            return super().run(action)
        finally:
            if self.seat is not None:
                self._profile.weigh(self.seat.state.memory_used)


class Watched:
    """A script under a stopwatch: its own time is that of its steps, its host's that from each call to its answer."""

    def __init__(self, script: Script, profile: Profile) -> None:
        self._script, self._profile = script, profile
        self._open: dict[int, tuple[str, float]] = {}

    async def start(self, arguments: Sequence[JSON], *, seed: int, at: int) -> Step:
        """Run until it waits or ends."""
        return await self._step(self._script.start(arguments, seed=seed, at=at))

    async def answer(self, call: int, values: Sequence[JSON], *, at: int) -> Step:
        """Give a call its results and run on."""
        self._over(call)
        return await self._step(self._script.answer(call, values, at=at))

    async def fail(self, call: int, error: JSON, *, at: int) -> Step:
        """Raise an error, which the script may catch, where the call was made, and run on."""
        self._over(call)
        return await self._step(self._script.fail(call, error, at=at))

    async def close(self) -> None:
        """Let go of the script; twice is once."""
        await self._script.close()

    async def _step(self, work: Awaitable[Step]) -> Step:
        began = time.perf_counter()
        self._profile.steps += 1
        try:
            step = await work
        finally:
            now = time.perf_counter()
            self._profile.vm_seconds += now - began
        if isinstance(step, Waiting):
            for call in step.calls:
                self._open[call.id] = call.name, now
            for number in step.dropped:
                self._over(number)
        return step

    def _over(self, number: int) -> None:
        opened = self._open.pop(number, None)
        if opened is not None:
            calls = self._profile.calls.setdefault(opened[0], Calls())
            calls.count += 1
            calls.seconds += time.perf_counter() - opened[1]
