"""Fakes and contract suites for tests of agents, and of parts that others plug into vaka. Nothing shipped imports it.

The contract suites need pytest and stand in modules of their own: ``vaka.testing.models``, ``stores``, ``files``,
``sandboxes``, ``adapters``.
"""

from vaka.testing.clock import FakeClock as FakeClock
from vaka.testing.clock import FakeIds as FakeIds
from vaka.testing.clock import FakeRandom as FakeRandom
from vaka.testing.models import ChaosModel as ChaosModel
from vaka.testing.models import FunctionModel as FunctionModel
from vaka.testing.models import RecordingModel as RecordingModel
from vaka.testing.models import ScriptedModel as ScriptedModel
from vaka.testing.models import call as call
from vaka.testing.models import calls as calls
from vaka.testing.models import fail as fail
from vaka.testing.models import say as say
from vaka.testing.models import stall as stall

__all__ = [
    "ChaosModel",
    "FakeClock",
    "FakeIds",
    "FakeRandom",
    "FunctionModel",
    "RecordingModel",
    "ScriptedModel",
    "call",
    "calls",
    "fail",
    "say",
    "stall",
]
