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

    @pytest.mark.exhaustive
    async def test_processor_time_is_bounded(self, sandbox: Sandbox, workspace: Path) -> None:
        """Seconds of it, and no other than elsewhere."""
        await super().test_processor_time_is_bounded(sandbox, workspace)
