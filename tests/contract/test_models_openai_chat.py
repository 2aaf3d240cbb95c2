"""The adapter contract for Chat Completions."""

import pytest

from vaka.models.openai_chat.model import OpenAIChat
from vaka.models.transport.client import Account
from vaka.testing.adapters import AdapterContract, AdapterMaker


class TestOpenAIChat(AdapterContract):
    @pytest.fixture
    def connecting(self) -> AdapterMaker:
        return lambda url, model: OpenAIChat(model, Account(base_url=url + "/v1", key="sk-test"))
