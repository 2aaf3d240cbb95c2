"""Gemini generateContent: the model, at the Gemini API or at Vertex AI."""

from urllib.parse import quote

import msgspec

from vaka.core.ports.model import Prompt
from vaka.models.gemini.events import GeminiStreamDecoder
from vaka.models.gemini.request import answer_tool_name, check_part, to_request
from vaka.models.options import read_options
from vaka.models.provider_model import HttpRequestParts, ProviderModel
from vaka.models.transport.client import Account, ConnectionPool

BASE_URL = "https://generativelanguage.googleapis.com/v1beta"


class Gemini(ProviderModel):
    """One of Google's models; the key is sent as ``x-goog-api-key``, without one the account's headers authenticate.

    For Vertex AI the base URL ends before ``models/…``: ``…/publishers/google``. The name of a model may also be a
    path, such as ``tunedModels/x``.
    """

    def __init__(self, model: str, account: Account, *, http: ConnectionPool | None = None, name: str = "") -> None:
        path = quote(model if "/" in model else f"models/{model}", safe="/@")
        super().__init__(
            name or f"gemini/{model}", msgspec.structs.replace(account, query={**account.query, "alt": "sse"}),
            f"{path}:streamGenerateContent", headers={"x-goog-api-key": account.key} if account.key else {}, http=http,
            check_part=lambda part: check_part(model, part),
        )  # fmt: skip
        self._model = model

    def _write_request(self, prompt: Prompt) -> HttpRequestParts:
        options = read_options(prompt.options)
        decoder = GeminiStreamDecoder(self._model, answer_tool_name(self._model, prompt, options))
        return HttpRequestParts(to_request(self._model, prompt, options), options.headers, decoder)
