"""Fixtures of journeys: the installed vaka, a provider, a repository, an account, and served projects."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.installed import Home, install
from tests.journeys.project import Project
from tests.journeys.provider import Provider
from tests.journeys.served_project import ServedProject
from tests.postgres_server import PostgresServer


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the installed programs."""
    return install()


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A provider; the story must have a script for every request that it receives."""
    with Provider() as provider:
        yield provider
    assert [request.raw for request in provider.unexpected] == []


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A repository with uncommitted work, which must exist at the end of the story."""
    project = Project(tmp_path / "harbour")
    yield project
    project.check()


@pytest.fixture
def home(tmp_path: Path, programs: Path, provider: Provider) -> Home:
    """An account with keys of the provider."""
    return Home(tmp_path / "home", programs, provider.environment)


@pytest.fixture(scope="session")
def served_on_sqlite(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProject]:
    """A server with one process and the default store."""
    with ServedProject(tmp_path_factory.mktemp("sqlite"), programs) as served:
        yield served


@pytest.fixture(scope="session")
def served_on_postgres(
    programs: Path, tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer
) -> Iterator[ServedProject]:
    """A server with two processes and PostgreSQL."""
    with (
        postgres_server.database() as dsn,
        ServedProject(tmp_path_factory.mktemp("postgres"), programs, dsn, ["--workers", "2"]) as served,
    ):
        yield served


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.exhaustive)])
def served(request: pytest.FixtureRequest) -> Iterator[ServedProject]:
    """A server that the stories of a test process share; `make test-all` tells each story on both stores."""
    served: ServedProject = request.getfixturevalue(f"served_on_{request.param}")
    yield served
    served.check()


@pytest.fixture
def served_by_two(served_on_postgres: ServedProject) -> Iterator[ServedProject]:
    """The shared server with PostgreSQL, for stories that `make test` tells on it."""
    yield served_on_postgres
    served_on_postgres.check()
