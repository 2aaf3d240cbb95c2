from pathlib import Path

import pytest

from vaka.core.ports.sandbox import Sandbox
from vaka.core.types.errors import SandboxError
from vaka.sandbox.linux import Bubblewrap
from vaka.testing.confinement import ConfinementContract
from vaka.testing.sandboxes import shell_command


@pytest.mark.every_loop
class TestBubblewrap(ConfinementContract):
    @pytest.fixture
    def sandbox(self) -> Sandbox:
        return Bubblewrap()


@pytest.mark.every_loop(exhaustive=True)
class TestBubblewrapAtHome(TestBubblewrap):
    workspace_parent = str(Path.home())  # the sandbox replaces only temporary folders by empty ones

    @pytest.mark.exhaustive
    async def test_processor_time_is_bounded(self, sandbox: Sandbox, workspace: Path) -> None:
        """Exhaustive runs only: it takes seconds, and the default sandbox has the same test."""
        await super().test_processor_time_is_bounded(sandbox, workspace)


@pytest.mark.every_loop(exhaustive=True)
class TestBubblewrapWhereTheKernelIsOld(TestBubblewrap):
    protects_links = False

    @pytest.fixture
    def sandbox(self) -> Sandbox:
        return Bubblewrap(mount_trees=False)

    async def test_a_protected_link_is_refused(self, sandbox: Sandbox, workspace: Path) -> None:
        (workspace / "real").mkdir()
        (workspace / ".claude").symlink_to("real")
        with pytest.raises(SandboxError, match="link"):
            await sandbox.start(shell_command("true", workspace, protected=(f"{workspace}/.claude",)))

    @pytest.mark.exhaustive
    async def test_processor_time_is_bounded(self, sandbox: Sandbox, workspace: Path) -> None:
        """Exhaustive runs only: it takes seconds, and the default sandbox has the same test."""
        await super().test_processor_time_is_bounded(sandbox, workspace)
