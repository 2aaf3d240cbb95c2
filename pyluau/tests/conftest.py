from collections.abc import Iterator

import pytest

import pyluau


@pytest.fixture
def state() -> Iterator[pyluau.State]:
    with pyluau.State() as state:
        yield state
