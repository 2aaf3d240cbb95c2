"""VMs, made once and used by many scripts; scripts in one VM see nothing of each other."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vaka.core.types.errors import Closed
from vaka.core.types.ids import Digest
from vaka.luau import require
from vaka.luau.bytecode import Bytecode, native
from vaka.luau.limits import ScriptLimits
from vaka.luau.program import Program

if TYPE_CHECKING:
    from pyluau import Function, Limits, State

MOST_STATES = 256
MOST_IDLE = 16
MOST_KNOWN = 1024
MOST_PRELUDES = 16
MOST_PRINTED = 256 << 10
SLOW = 0.01
"""Seconds of work after which a step has held up everyone else for too long; the program is then run in threads."""
QUICK_AGAIN = 64
"""Quick steps after which a program is run in the event loop again."""
LEFT_BEHIND = 2 << 20
"""Bytes that a VM may hold more than a fresh one before it is thrown away."""


class Printed:
    """What the script printed that runs in a VM, within reason."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._room = MOST_PRINTED

    def add(self, line: str | bytes) -> None:
        """Keep a line."""
        if self._room <= 0:
            return
        text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
        self._room -= len(text) + 1
        self._lines.append(text if self._room > 0 else f"{text[: self._room]}… (more was printed than can be shown)")

    def take(self) -> list[str]:
        """Return the lines since this was last asked."""
        lines, self._lines, self._room = self._lines, [], MOST_PRINTED
        return lines


@dataclass(slots=True, eq=False)
class Seat:
    """A VM and who uses it."""

    state: "State"
    kind: tuple[int | None, int]
    fresh: int
    """Bytes it held when it was made."""
    printed: Printed
    scripts: int = 0
    spoiled: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a script of this VM runs in a thread."""
    _preludes: "dict[bytes, Function]" = field(default_factory=dict[bytes, "Function"])

    def prelude(self, code: bytes) -> "Function":
        """Return a prelude, loaded once for all scripts: its globals are the VM's, which nobody can change."""
        function = self._preludes.get(code)
        if function is None:
            if len(self._preludes) >= MOST_PRELUDES:
                self._preludes.clear()
            function = self._preludes[code] = self.state.load(code, "=prelude", self.state.globals)
        return function


@dataclass(frozen=True, slots=True)
class Prepared:
    """A program as a VM takes it."""

    script: bytes
    main: bytes | None
    preludes: list[bytes]
    limits: "Limits"


class Pool:
    """Lends VMs to scripts.

    A script has a VM to itself as long as there are fewer than ``most``; beyond that scripts share, each in a place of
    its own, and share the memory of the VM. Up to ``idle`` VMs are kept for later.
    """

    def __init__(self, *, most: int = MOST_STATES, idle: int = MOST_IDLE, bytecode: Bytecode | None = None) -> None:
        self.bytecode = bytecode or Bytecode()
        self.most = most
        self.idle = idle
        self.closed = False
        self._idle: dict[tuple[int | None, int], list[Seat]] = {}
        self._busy: dict[tuple[int | None, int], list[Seat]] = {}
        self._prepared: OrderedDict[tuple[Digest, ScriptLimits], Prepared] = OrderedDict()
        self._slow: OrderedDict[Digest, int] = OrderedDict()

    @property
    def states(self) -> int:
        """How many VMs there are."""
        return sum(len(seats) for kinds in (self._idle, self._busy) for seats in kinds.values())

    def prepare(self, program: Program) -> Prepared:
        """Return a program compiled, from memory if it was here before."""
        key = (program.digest, program.limits)
        known = self._prepared.get(key)
        if known is None:
            sources = [*program.preludes, require.PRELUDE]
            known = self._prepared[key] = Prepared(
                self.bytecode.compile(program.source, program.name, program.opt),
                self.bytecode.compile(program.main, "main", program.opt) if program.main else None,
                [self.bytecode.compile(source, "prelude") for source in sources],
                native_limits(program.limits),
            )
            _trim(self._prepared)
        self._prepared.move_to_end(key)
        return known

    def is_slow(self, program: Program) -> bool:
        """Say whether a step of this program took long not so long ago."""
        return bool(self._slow) and program.digest in self._slow

    def took(self, program: Program, seconds: float) -> None:
        """Take note of how much work a step was."""
        if seconds > SLOW:
            self._slow[program.digest] = QUICK_AGAIN
            _trim(self._slow)
        elif self.is_slow(program):
            self._slow[program.digest] -= 1
            if not self._slow[program.digest]:
                del self._slow[program.digest]

    def take(self, limits: ScriptLimits) -> Seat:
        """Return a VM for one more script; ``give`` it back."""
        if self.closed:
            raise Closed("the pool of VMs is closed")
        kind = (limits.memory, limits.depth)
        idle = self._idle.get(kind)
        if idle:
            seat = idle.pop()
        else:
            shared = self._shared(kind)
            if shared is not None:
                return shared
            seat = self._make(limits, kind)
        seat.scripts = 1
        self._busy.setdefault(kind, []).append(seat)
        return seat

    def give(self, seat: Seat) -> None:
        """Take a VM back from a script that has ended."""
        seat.scripts -= 1
        if seat.scripts:
            return
        self._busy[seat.kind].remove(seat)
        idle = self._idle.setdefault(seat.kind, [])
        if self.closed or seat.spoiled or sum(map(len, self._idle.values())) >= self.idle or not _clean(seat):
            seat.state.close()
        else:
            idle.append(seat)

    def close(self) -> None:
        """Free the VMs that nobody uses; those in use go when their scripts end."""
        self.closed = True
        for seats in self._idle.values():
            while seats:
                seats.pop().state.close()

    def _shared(self, kind: tuple[int | None, int]) -> Seat | None:
        if self.states < self.most:
            return None
        sound = [seat for seat in self._busy.get(kind, ()) if not seat.spoiled]
        if not sound:
            return None
        seat = min(sound, key=lambda seat: seat.scripts)
        seat.scripts += 1
        return seat

    def _make(self, limits: ScriptLimits, kind: tuple[int | None, int]) -> Seat:
        printed = Printed()
        state: State = native().State(limits=native_limits(limits), key=self.bytecode.key, print=printed.add)
        return Seat(state, kind, state.memory_used, printed)


def native_limits(limits: ScriptLimits) -> "Limits":
    """Return limits as the VM takes them."""
    made: Limits = native().Limits(
        memory=limits.memory,
        seconds=limits.seconds,
        instructions=limits.instructions,
        coroutines=limits.coroutines,
        depth=limits.depth,
    )
    return made


def _clean(seat: Seat) -> bool:
    """Say whether a VM is as good as new; one that was left much to carry is not."""
    if seat.state.memory_used - seat.fresh > LEFT_BEHIND:
        seat.state.collect()
    return seat.state.memory_used - seat.fresh <= LEFT_BEHIND


def _trim(known: "OrderedDict[Any, Any]") -> None:
    while len(known) > MOST_KNOWN:
        known.popitem(last=False)
