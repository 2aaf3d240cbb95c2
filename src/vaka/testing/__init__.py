"""Fakes and contract suites for tests of agents, and of parts that others plug into vaka. Nothing shipped imports it.

The contract suites need pytest and stand in modules of their own: ``vaka.testing.models``, ``stores``, ``files``,
``sandboxes``, ``adapters``, ``agents``.
"""

from vaka.testing.clock import FakeClock, FakeIds, FakeRandom
from vaka.testing.models import ChaosModel, FunctionModel, RecordingModel, ScriptedModel, call, calls, fail, say, stall

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
