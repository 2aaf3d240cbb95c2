from pathlib import Path

import pytest

from vaka.core.ports.sandbox import Sandbox
from vaka.sandbox.bubblewrap import Bubblewrap
from vaka.testing.confinement import ConfinementContract


class TestBubblewrap(ConfinementContract):
    @pytest.fixture
    def sandbox(self) -> Sandbox:
        return Bubblewrap()


class TestBubblewrapAtHome(TestBubblewrap):
    base = str(Path.home())  # temporary folders are replaced by empty ones, others are not
