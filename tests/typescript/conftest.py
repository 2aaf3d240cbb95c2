"""The built client."""

from pathlib import Path

import pytest

from tests.typescript.client_build import build_client


@pytest.fixture(scope="session")
def client_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_client(tmp_path_factory.mktemp("ts"))
