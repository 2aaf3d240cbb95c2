"""The adapter for Gemini keeps every promise of a model and of an adapter."""

import pytest

from vaka.core.types.errors import StreamCut
from vaka.models.gemini import Gemini
from vaka.models.http import Account
from vaka.testing.adapters import AdapterContract, Connecting
from vaka.testing.models import Answering, hear


class TestGemini(AdapterContract):
    @pytest.fixture
    def connecting(self) -> Connecting:
        return lambda url, model: Gemini(model, Account(base_url=url + "/v1beta", key="sk-test"))

    async def test_what_a_model_wrote_for_arguments_is_handed_on_as_it_is(self, answering: Answering) -> None:
        """Calls are JSON on this wire: the API itself says that what a model wrote is none."""
        with pytest.raises(StreamCut, match="MALFORMED_FUNCTION_CALL"):
            await hear(answering({"tool_calls": [{"name": "weather", "arguments": '{"city": "Hilo"'}]}))
