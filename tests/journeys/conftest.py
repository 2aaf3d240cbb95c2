"""Fixtures of journeys: the installed vaka, a provider, a repository, an account, and served projects."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.harbour import Harbour
from tests.journeys.installed import Home, install
from tests.journeys.project import Project
from tests.journeys.provider import Provider
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
def sqlite_harbour(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harbour]:
    """A server with one process and the default store."""
    with Harbour(tmp_path_factory.mktemp("sqlite"), programs) as harbour:
        yield harbour


@pytest.fixture(scope="session")
def postgres_harbour(
    programs: Path, tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer
) -> Iterator[Harbour]:
    """A server with two processes and PostgreSQL."""
    with (
        postgres_server.database() as dsn,
        Harbour(tmp_path_factory.mktemp("postgres"), programs, dsn, ["--workers", "2"]) as harbour,
    ):
        yield harbour


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.exhaustive)])
def harbour(request: pytest.FixtureRequest) -> Iterator[Harbour]:
    """A server that the stories of a test process share; `make test-all` tells each story on both stores."""
    harbour: Harbour = request.getfixturevalue(f"{request.param}_harbour")
    yield harbour
    harbour.check()


@pytest.fixture
def postgres_office(postgres_harbour: Harbour) -> Iterator[Harbour]:
    """The shared server with PostgreSQL, for stories that `make test` tells on it."""
    yield postgres_harbour
    postgres_harbour.check()
