"""The adapter contract for Anthropic Messages."""

import pytest

from vaka.models.anthropic.model import Anthropic
from vaka.models.transport.client import Account
from vaka.testing.adapters import AdapterContract, AdapterMaker


class TestAnthropic(AdapterContract):
    @pytest.fixture
    def connecting(self) -> AdapterMaker:
        return lambda url, model: Anthropic(model, Account(base_url=url + "/v1", key="sk-test"))
