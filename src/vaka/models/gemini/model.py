"""Gemini generateContent: the model, at the Gemini API or at Vertex AI."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import quote

import msgspec

from vaka.core.ports.model import Chunk, Prompt
from vaka.models.compatibility import HistoryAdapter
from vaka.models.gemini.events import GeminiStreamDecoder
from vaka.models.gemini.request import answer_tool_name, check_part, to_request
from vaka.models.options import read_options
from vaka.models.transport.client import Account, ConnectionPool, ProviderClient

BASE_URL = "https://generativelanguage.googleapis.com/v1beta"


class Gemini:
    """A model of Google's, asked with a key (``x-goog-api-key``) or, without one, as the account's headers say.

    For Vertex AI the address ends where ``models/…`` follows: ``…/publishers/google``. A model's name may also be a
    whole path, such as ``tunedModels/x``.
    """

    def __init__(self, model: str, account: Account, *, http: ConnectionPool | None = None, name: str = "") -> None:
        self._model, self._name = model, name or f"gemini/{model}"
        path = model if "/" in model else f"models/{model}"
        self._path = f"{quote(path, safe='/@')}:streamGenerateContent"
        self._history = HistoryAdapter(self._name, account.base_url, lambda part: check_part(model, part))
        asked = msgspec.structs.replace(account, query={**account.query, "alt": "sse"})
        self._client = ProviderClient(asked, {"x-goog-api-key": account.key} if account.key else {}, http)

    @property
    def name(self) -> str:
        """What this model is called in logs."""
        return self._name

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer ``prompt``. Raises ``ModelError`` and nothing else."""
        options = read_options(prompt.options)
        prompt, notices = self._history.adapt(prompt)
        for notice in notices:
            yield notice
        body = to_request(self._model, prompt, options)
        events = GeminiStreamDecoder(self._model, answer_tool_name(self._model, prompt, options))
        with self._client.redact_errors(options.headers):
            async with aclosing(self._client.stream_events(self._path, body, headers=options.headers)) as items:
                async for item in items:
                    for chunk in events.feed(item.data):
                        yield self._history.tag_origin(chunk)
            for chunk in events.end():
                yield self._history.tag_origin(chunk)

    async def close(self) -> None:
        """Close the connections, unless they are somebody else's."""
        await self._client.close()
