"""The adapter for Responses keeps every promise of a model and of an adapter."""

import pytest

from vaka.models.http import Account
from vaka.models.openai_responses import OpenAIResponses
from vaka.testing.adapters import AdapterContract, Connecting


class TestOpenAIResponses(AdapterContract):
    @pytest.fixture
    def connecting(self) -> Connecting:
        return lambda url, model: OpenAIResponses(model, Account(base_url=url + "/v1", key="sk-test"))
