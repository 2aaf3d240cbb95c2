"""Fixtures of journeys: the installed vaka, a provider, a repository, and a person's account."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.installed import Home, install
from tests.journeys.project import Project
from tests.journeys.provider import Provider


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
