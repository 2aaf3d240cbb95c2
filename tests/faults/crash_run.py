"""The agent run that crash tests kill: tools of every effect, parallel calls, an approval, a subagent.

Each effect is a row in a ledger, a separate SQLite database, so that effects can be counted."""

import asyncio
import importlib
import os
import signal
import sqlite3
import warnings
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any, cast

import msgspec

from tests.faults.line_protocol import print_line
from vaka.agents.react import Agent
from vaka.config.options import Permissions
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.env import AskMode
from vaka.core.ports.model import Chunk, Model, Prompt
from vaka.core.ports.store import Store
from vaka.core.ports.tool import ToolContext
from vaka.core.types.message import ToolCall, ToolResult
from vaka.runtime.clock import SystemClock
from vaka.runtime.open_store import Durability
from vaka.runtime.open_store import open_store as open_named_store
from vaka.runtime.options import Environment
from vaka.runtime.runtime import Runtime
from vaka.testing.models import ScriptedModel, call, calls, say
from vaka.tools import tool

REQUEST = "Sail."
REQUEST_KEY = "request-1"
ANSWER = "Landed. 🛶"
ONCE_TOOLS = ("charge", "deploy", "pay")
SCRIPT = (
    calls(
        call("look", where="north"),
        call("stamp", what="log"),
        call("charge", what="fare"),
        text="First the papers.",
        usage={"input": 10, "output": 5},
    ),
    call("deploy", what="sail") | {"usage": {"input": 20, "output": 6}},
    call("scout", prompt="Find the reef.") | {"usage": {"input": 30, "output": 6}},
    say(ANSWER, usage={"input": 40, "output": 7}),
)
SCOUT_SCRIPT = (
    calls(call("stamp", what="reef"), call("pay", what="pilot"), usage={"input": 2, "output": 1}),
    say("The reef is south.", usage={"input": 3, "output": 2}),
)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a process does; passed on its command line."""

    store: str
    session: str
    ledger: str
    durability: Durability = "power"
    ask: str = "wait"
    how: str = "say"
    """``say`` the request, or ``resume`` what is unfinished."""
    decide: str = "approve"
    """``approve`` requests (and leave lost calls unknown), look them up in the ``ledger``, or ``""``: do nothing."""
    ahead: float = 0.0
    """Seconds this process's clock is ahead, so that deadlines have passed."""
    lease: float = 15.0
    timeout: float = 30.0
    """Seconds the ``once`` tools may take."""
    die: str = ""
    """``before:2`` or ``after:2``: die around the second effect; ``stop:2``: SIGSTOP before it; ``fork:2``: die and
    leave a child."""
    pause: str = ""
    """``append.after_commit:2``: SIGSTOP at the second pass of that failpoint."""
    full: int = 0
    """The number of the write before which the disk becomes full."""
    wait: bool = False
    """Whether to wait for a line before beginning."""
    gates: tuple[int, ...] = ()
    """The captain's model calls that wait for a line."""


class EffectLedger:
    """Counts effects; a process may die before or after each."""

    def __init__(self, path: str | Path, die: str = "") -> None:
        self._path = path
        moment, _, number = die.partition(":")
        self._die = (moment, int(number or 0))
        self._passes: Counter[str] = Counter()
        with closing(self._open()) as ledger:
            ledger.execute("create table if not exists effects (tool text, key text, call text, what text)")
            ledger.execute("create unique index if not exists honoured on effects (key) where tool = 'stamp'")

    def record_effect(self, name: str, context: ToolContext, what: str) -> None:
        """Record an effect. ``stamp`` is idempotent: a second effect under one key is ignored."""
        self._die_if_due("stop", signal.SIGSTOP)
        if self._is_due("fork"):
            fork_and_die()
        self._die_if_due("before")
        with closing(self._open()) as ledger:
            ledger.execute("insert or ignore into effects values (?, ?, ?, ?)", (name, context.key, context.call, what))
        self._die_if_due("after")

    def count_effects(self) -> Counter[tuple[str, str]]:
        """Return the number of effects of each call."""
        with closing(self._open()) as ledger:
            return Counter((name, call) for name, call in ledger.execute("select tool, call from effects"))

    def _open(self) -> sqlite3.Connection:
        ledger = sqlite3.connect(self._path, isolation_level=None, timeout=30)
        ledger.execute("pragma synchronous = off")
        return ledger

    def _die_if_due(self, moment: str, end: signal.Signals = signal.SIGKILL) -> None:
        if self._is_due(moment):
            print_line(moment)
            os.kill(os.getpid(), end)

    def _is_due(self, moment: str) -> bool:
        self._passes[moment] += 1
        return self._die == (moment, self._passes[moment])


def fork_and_die() -> None:
    """Fork, as a careless tool does, and die; the child stays alive."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        os.closerange(0, 3)  # the test reads the parent's pipes to their end
        signal.pause()
    print_line("child", child)
    os.kill(os.getpid(), signal.SIGKILL)


class AheadClock(SystemClock):
    """The machine's clock, ahead by some seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def time(self) -> float:
        return super().time() + self._seconds


async def _yield_to_loop() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


Gate = Callable[[str], Awaitable[None]]


class GatedModel(ScriptedModel):
    """The script; some calls of the captain wait at a gate."""

    def __init__(self, gate: Gate, calls: tuple[int, ...]) -> None:
        super().__init__(*SCRIPT, agents={"scout": SCOUT_SCRIPT})
        self._gate, self._calls = gate, calls

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        if not prompt.path and prompt.number in self._calls:
            await self._gate(f"model-{prompt.number}")
        async with aclosing(super().stream(prompt)) as chunks:
            async for chunk in chunks:
                yield chunk


def make_agent(ledger: EffectLedger, timeout: float = 30.0, model: Model | None = None) -> Agent:
    """Return the agent ``captain``, with the subagent ``scout``."""
    model = model or ScriptedModel(*SCRIPT, agents={"scout": SCOUT_SCRIPT})

    @tool(effect="read")
    async def look(where: str) -> str:
        """Look somewhere."""
        return f"open sea in the {where}"

    @tool(effect="idempotent")
    async def stamp(context: ToolContext, what: str) -> str:
        """Stamp something; a second stamp under one key is the first."""
        ledger.record_effect("stamp", context, what)
        await _yield_to_loop()
        return f"{what} is stamped"

    async def record_spending(context: ToolContext, name: str, what: str) -> str:
        await _yield_to_loop()
        ledger.record_effect(name, context, what)
        await _yield_to_loop()
        return f"{name}: {what}"

    @tool(effect="once", timeout=timeout)
    async def charge(context: ToolContext, what: str) -> str:
        """Charge for something."""
        return await record_spending(context, "charge", what)

    @tool(effect="once", timeout=timeout)
    async def deploy(context: ToolContext, what: str) -> str:
        """Deploy something, if a person agrees."""
        return await record_spending(context, "deploy", what)

    @tool(effect="once", timeout=timeout)
    async def pay(context: ToolContext, what: str) -> str:
        """Pay for something."""
        return await record_spending(context, "pay", what)

    async def keep_result(_turn: Any, _call: ToolCall, result: ToolResult) -> ToolResult:
        return result

    scout = Agent(
        "scout", model=model, tools=[stamp, pay], middleware=[Middleware.from_functions("seen", after_tool=keep_result)]
    )
    return Agent("captain", model=model, instructions="Be brief.", tools=[look, stamp, charge, deploy, scout])


def open_store(plan: Plan) -> Store:
    """Open the store a plan names."""
    if plan.store.startswith("postgres"):
        postgres = importlib.import_module("vaka.stores.postgres")  # only where it is used: the import is slow
        store: Store = postgres.PostgresStore(plan.store, lease=plan.lease, durability=plan.durability)
        return store
    return open_named_store(plan.store, durability=plan.durability)


def make_runtime(plan: Plan, store: Store) -> Runtime:
    """Return the runtime of a plan: its permission rules ask about ``deploy`` and allow the other tools."""
    clock = AheadClock(plan.ahead) if plan.ahead else None
    allow = ("look", "stamp", "charge", "pay", "scout")
    return Runtime(
        store=store,
        permissions=Permissions(ask=cast("AskMode", plan.ask), allow=allow, confirm=("deploy",)),
        environment=Environment(clock=clock),
    )
