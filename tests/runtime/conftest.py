from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.runtime.approval_project import ApprovalProject
from vaka.core.ports.store import Store
from vaka.stores.memory import MemoryStore
from vaka.stores.postgres import PostgresStore
from vaka.stores.sqlite import SqliteStore


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ApprovalProject:
    made = ApprovalProject(tmp_path)
    monkeypatch.setenv("HOME", str(made.home))
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with an empty home folder."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "project/.git").mkdir(parents=True)
    return tmp_path / "project"


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def every_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Each kind of store, empty."""
    made: Store = MemoryStore()
    if request.param == "sqlite":
        made = SqliteStore(tmp_path / "vaka.db", durability="process")
    elif request.param == "postgres":
        made = PostgresStore(request.getfixturevalue("postgres_dsn"))
    yield made
    await made.close()
