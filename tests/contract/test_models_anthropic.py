"""The adapter for Anthropic Messages keeps every promise of a model and of an adapter."""

import pytest

from vaka.models.anthropic import Anthropic
from vaka.models.http import Account
from vaka.testing.adapters import AdapterContract, Connecting


class TestAnthropic(AdapterContract):
    @pytest.fixture
    def connecting(self) -> Connecting:
        return lambda url, model: Anthropic(model, Account(base_url=url + "/v1", key="sk-test"))
