"""The idempotency key of a call: the same for each of its attempts, and never used for another call."""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import vaka
from tests.runtime.runtime_fixtures import collect
from tests.unmeasured import without_coverage
from vaka.config.options import Storage
from vaka.core.ports.store import Store
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.progress import ToolStarted
from vaka.runtime.session_edits import delete_session
from vaka.testing.models import ScriptedModel, call, say

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import asyncio, sys
from tests.faults.test_call_keys import run_charge
asyncio.run(run_charge(sys.argv[1], sys.argv[2]))
"""


class Ledger:
    """A payment service that stores one charge for each key, and remembers charges after the caller forgot them."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    def charges(self) -> dict[str, int]:
        return json.loads(self.file.read_text("utf-8")) if self.file.exists() else {}

    def charge(self, key: str, amount: int) -> int:
        """Store a charge; a key that is known returns the first charge."""
        charges = self.charges
        charges.setdefault(key, amount)
        self.file.write_text(json.dumps(charges), "utf-8")
        return charges[key]

    def agent(self, amount: int, *, hang: bool = False, model: ScriptedModel | None = None) -> vaka.Agent:
        """Return an agent that charges once."""

        @vaka.tool(effect="idempotent")
        async def charge(context: vaka.ToolContext, amount: int) -> int:
            """Charge."""
            charged = self.charge(context.key, amount)
            if hang:
                sys.stdout.write("charged\n")
                sys.stdout.flush()
                await asyncio.Event().wait()
            return charged

        model = model or ScriptedModel(call("charge", amount=amount), say("done"))
        return vaka.Agent("payer", model=model, tools=[charge])


async def _read_log(store: Store) -> list[Event]:
    return await collect(store.events.read(SessionId("shop")))


def _keys_of(log: Sequence[Event]) -> list[str]:
    return [event.data.key for event in log if isinstance(event.data, ToolStarted)]


async def run_charge(store: str, ledger: str) -> None:
    """Run a turn whose charge reaches the ledger and never returns."""
    async with vaka.Runtime(store=store) as rt:
        await (await rt.open(Ledger(Path(ledger)).agent(10, hang=True), id="shop")).run("Charge.")


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/vaka.db"
    return str(request.getfixturevalue("postgres_dsn"))


async def test_a_session_that_is_deleted_and_created_again_charges_again(store: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.json")
    async with vaka.Runtime(store=store) as rt:
        await (await rt.open(ledger.agent(10), id="shop")).run("Charge 10.")
        await delete_session(rt.store, SessionId("shop"))
        await (await rt.open(ledger.agent(99), id="shop")).run("Charge 99.")
    assert sorted(ledger.charges.values()) == [10, 99]
    assert {key.rpartition("/")[0] for key in ledger.charges} == {"shop/call_1"}


async def test_a_backup_that_is_restored_before_the_call_started_gives_it_another_key(tmp_path: Path) -> None:
    ledger, file = Ledger(tmp_path / "ledger.json"), tmp_path / "vaka.db"
    async with vaka.Runtime(store=f"sqlite:///{file}") as rt:
        await (await rt.open(ledger.agent(1), id="shop")).run("Charge 1.")
    backup = file.read_bytes()
    for amount in (10, 99):
        file.write_bytes(backup)
        async with vaka.Runtime(store=f"sqlite:///{file}") as rt:
            model = ScriptedModel(say(""), say(""), call("charge", amount=amount), say("done"))
            await (await rt.open(ledger.agent(amount, model=model), id="shop")).run("Charge.")
    assert sorted(ledger.charges.values()) == [1, 10, 99]


async def test_a_call_whose_process_was_killed_runs_again_with_its_key(tmp_path: Path) -> None:
    store, ledger = f"sqlite:///{tmp_path}/vaka.db", Ledger(tmp_path / "ledger.json")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, store, str(ledger.file)),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=without_coverage(),
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"charged\n"
    process.kill()
    await process.wait()
    async with vaka.Runtime(store=store) as rt:
        session = await rt.open(ledger.agent(10), id="shop")
        assert (await session.resume().wait()).text == "done"
        log = await _read_log(rt.store)
    assert _keys_of(log) == [*ledger.charges, *ledger.charges]


async def test_a_registered_secret_that_is_part_of_a_key_does_not_change_the_key(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.json")
    async with vaka.Runtime(storage=Storage(secrets=["call_1/key_"])) as rt:
        session = await rt.open(ledger.agent(10), id="shop")
        await session.run("Charge with call_1/key_.")
        log = await _read_log(rt.store)
    assert _keys_of(log) == [*ledger.charges]
