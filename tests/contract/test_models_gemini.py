"""The adapter contract for Gemini."""

import pytest

from vaka.core.types.errors import StreamCut
from vaka.models.gemini.model import Gemini
from vaka.models.transport.client import Account
from vaka.testing.adapters import AdapterContract, AdapterMaker
from vaka.testing.models import ModelMaker, collect_stream


class TestGemini(AdapterContract):
    @pytest.fixture
    def connecting(self) -> AdapterMaker:
        return lambda url, model: Gemini(model, Account(base_url=url + "/v1beta", key="sk-test"))

    async def test_broken_arguments_are_passed_on_unchanged(self, answering: ModelMaker) -> None:
        """Gemini sends calls as JSON objects: the API reports malformed arguments as an error."""
        with pytest.raises(StreamCut, match="MALFORMED_FUNCTION_CALL"):
            await collect_stream(answering({"tool_calls": [{"name": "weather", "arguments": '{"city": "Hilo"'}]}))
