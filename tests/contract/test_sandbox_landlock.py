from pathlib import Path

import pytest

from vaka.core.ports.sandbox import Sandbox
from vaka.sandbox.landlock import Landlock
from vaka.testing.confinement import ConfinementContract


class TestLandlockWithNamespaces(ConfinementContract):
    hides_processes = False

    @pytest.fixture
    def sandbox(self) -> Sandbox:
        return Landlock()


class TestLandlockAlone(ConfinementContract):
    hides_processes = False
    holds_inside = False

    @pytest.fixture
    def sandbox(self) -> Sandbox:
        return Landlock(namespaces=False)


class TestLandlockWithNamespacesAtHome(TestLandlockWithNamespaces):
    base = str(Path.home())  # temporary folders are replaced by empty ones, others are not


class TestLandlockAloneAtHome(TestLandlockAlone):
    base = str(Path.home())  # temporary folders are replaced by empty ones, others are not
