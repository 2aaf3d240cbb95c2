import asyncio
import os
import signal
from pathlib import Path

import pytest

from vaka.core.ports.sandbox import Sandbox
from vaka.sandbox.unconfined import Unconfined
from vaka.testing.sandboxes import SandboxContract, shell_command, wait_for_file


@pytest.mark.every_loop(exhaustive=True)
class TestUnconfined(SandboxContract):
    @pytest.fixture
    def sandbox(self) -> Sandbox:
        return Unconfined()

    def test_the_unconfined_sandbox_enforces_nothing(self, sandbox: Sandbox) -> None:
        assert (sandbox.name, sandbox.enforces) == ("none", frozenset())


@pytest.mark.every_loop(exhaustive=True)
class TestPortable(SandboxContract):
    ends_detached_processes = False
    enforces_bounds = False

    @pytest.fixture
    def sandbox(self) -> Sandbox:
        return Unconfined(portable=True)

    async def test_a_stopped_command_keeps_no_pipe_to_a_process_that_has_left_its_group(
        self, sandbox: Sandbox, workspace: Path
    ) -> None:
        await (await sandbox.start(shell_command("true", workspace))).wait()  # opens what asyncio keeps
        before = len([*Path("/proc/self/fd").iterdir()])
        script = "setsid sleep 600 & echo $! > pid.new; mv pid.new pid; exec sleep 600"
        process = await sandbox.start(shell_command(script, workspace))
        await wait_for_file(workspace / "pid")
        await process.stop(0)
        await asyncio.sleep(0)
        assert len([*Path("/proc/self/fd").iterdir()]) == before
        os.kill(int((workspace / "pid").read_text()), signal.SIGKILL)
