from pathlib import Path

import pytest

from vaka.core.ports.sandbox import Sandbox
from vaka.sandbox.linux import Landlock
from vaka.testing.confinement import ConfinementContract


class TestLandlockWithNamespaces(ConfinementContract):
    hides_processes = False

    @pytest.fixture
    def sandbox(self) -> Sandbox:
        return Landlock()


class TestLandlockAlone(ConfinementContract):
    hides_processes = False
    protects_inside_writable = False

    @pytest.fixture
    def sandbox(self) -> Sandbox:
        return Landlock(namespaces=False)


class TestLandlockWithNamespacesAtHome(TestLandlockWithNamespaces):
    workspace_parent = str(Path.home())  # temporary folders are replaced by empty ones, others are not

    @pytest.mark.exhaustive
    async def test_processor_time_is_bounded(self, sandbox: Sandbox, workspace: Path) -> None:
        """Seconds of it, and no other than elsewhere."""
        await super().test_processor_time_is_bounded(sandbox, workspace)


class TestLandlockAloneAtHome(TestLandlockAlone):
    workspace_parent = str(Path.home())  # temporary folders are replaced by empty ones, others are not

    @pytest.mark.exhaustive
    async def test_processor_time_is_bounded(self, sandbox: Sandbox, workspace: Path) -> None:
        """Seconds of it, and no other than elsewhere."""
        await super().test_processor_time_is_bounded(sandbox, workspace)
