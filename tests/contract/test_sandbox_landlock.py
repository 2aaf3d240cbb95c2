from pathlib import Path

import pytest

from vaka.core.ports.sandbox import Sandbox
from vaka.sandbox.linux import Landlock
from vaka.testing.confinement import ConfinementContract


@pytest.mark.every_loop(exhaustive=True)
class TestLandlockWithNamespaces(ConfinementContract):
    hides_processes = False

    @pytest.fixture
    def sandbox(self) -> Sandbox:
        return Landlock()

    @pytest.mark.exhaustive
    async def test_processor_time_is_bounded(self, sandbox: Sandbox, workspace: Path) -> None:
        """Exhaustive runs only: it takes seconds, and the default sandbox has the same test."""
        await super().test_processor_time_is_bounded(sandbox, workspace)


@pytest.mark.every_loop(exhaustive=True)
class TestLandlockAlone(ConfinementContract):
    hides_processes = False
    hides_names = False
    protects_inside_writable = False

    @pytest.fixture
    def sandbox(self) -> Sandbox:
        return Landlock(namespaces=False)

    @pytest.mark.exhaustive
    async def test_processor_time_is_bounded(self, sandbox: Sandbox, workspace: Path) -> None:
        """Exhaustive runs only: it takes seconds, and the default sandbox has the same test."""
        await super().test_processor_time_is_bounded(sandbox, workspace)


class TestLandlockWithNamespacesAtHome(TestLandlockWithNamespaces):
    workspace_parent = str(Path.home())  # the sandbox replaces only temporary folders by empty ones


class TestLandlockAloneAtHome(TestLandlockAlone):
    workspace_parent = str(Path.home())  # the sandbox replaces only temporary folders by empty ones
