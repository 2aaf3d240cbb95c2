"""The adapter for Chat Completions keeps every promise of a model and of an adapter."""

import pytest

from vaka.models.http import Account
from vaka.models.openai_chat import OpenAIChat
from vaka.testing.adapters import AdapterContract, Connecting


class TestOpenAIChat(AdapterContract):
    @pytest.fixture
    def connecting(self) -> Connecting:
        return lambda url, model: OpenAIChat(model, Account(base_url=url + "/v1", key="sk-test"))
