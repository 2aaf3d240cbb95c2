"""For all tests: event loops, a real PostgreSQL server, and reproducible Hypothesis settings."""

import asyncio
import gc
import os
import signal
import warnings
from collections.abc import Callable, Generator, Iterator

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from tests.postgres_server import PostgresServer

# No deadlines: machines are slow at times. `make test` draws the same examples on each run.
settings.register_profile(
    "default", deadline=None, derandomize=True, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("exhaustive", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_configure() -> None:
    """Let the programs under test start as from a terminal, and print nothing about the coverage of killed ones."""
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # below nohup; unlike a handler, a program inherits this
        signal.signal(signal.SIGHUP, lambda number, frame: None)
    # A process that is killed while it writes its coverage leaves a file that cannot be read.
    warnings.filterwarnings("ignore", message="Couldn't use data file")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude modules and collected tests, which live until the end, from garbage collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run a test marked ``every_loop`` on asyncio's own loop and on uvloop, which ``vaka serve`` uses.

    With ``every_loop(exhaustive=True)`` only ``make test-all`` uses both. The other tests run on asyncio's, or on the
    one that ``VAKA_TEST_LOOP`` names.
    """
    marker = item.get_closest_marker("every_loop")
    sampled = "not exhaustive" in item.config.option.markexpr
    if marker is not None and not (sampled and marker.kwargs.get("exhaustive")):
        return LOOPS
    name = os.environ.get("VAKA_TEST_LOOP", "asyncio")
    return {name: LOOPS[name]}


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The PostgreSQL server of this test process; a test may leave it stopped."""
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def postgres_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of a fresh, empty database."""
    with postgres_server.database() as dsn:
        yield dsn
