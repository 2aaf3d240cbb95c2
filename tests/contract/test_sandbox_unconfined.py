import pytest

from vaka.core.ports.sandbox import Sandbox
from vaka.sandbox.unconfined import Unconfined
from vaka.testing.sandboxes import SandboxContract


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
