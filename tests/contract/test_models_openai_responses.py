"""The adapter contract for Responses."""

import pytest

from vaka.models.openai_responses.model import OpenAIResponses
from vaka.models.transport.client import Account
from vaka.testing.adapters import AdapterContract, AdapterMaker


class TestOpenAIResponses(AdapterContract):
    @pytest.fixture
    def connecting(self) -> AdapterMaker:
        return lambda url, model: OpenAIResponses(model, Account(base_url=url + "/v1", key="sk-test"))
