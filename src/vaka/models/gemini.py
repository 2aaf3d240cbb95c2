"""Gemini's generateContent: the Gemini API, and Vertex AI under its own address."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import quote

import msgspec

from vaka.core.ports.model import Chunk, Prompt
from vaka.models.gemini_events import Events
from vaka.models.gemini_request import forced_tool, take, to_request
from vaka.models.http import Account, Http, Wire
from vaka.models.options import read
from vaka.models.past import Past

BASE_URL = "https://generativelanguage.googleapis.com/v1beta"


class Gemini:
    """A model of Google's, asked with a key (``x-goog-api-key``) or, without one, as the account's headers say.

    For Vertex AI the address ends where ``models/…`` follows: ``…/publishers/google``. A model's name may also be a
    whole path, such as ``tunedModels/x``.
    """

    def __init__(self, model: str, account: Account, *, http: Http | None = None, name: str = "") -> None:
        self._model, self._name = model, name or f"gemini/{model}"
        path = model if "/" in model else f"models/{model}"
        self._path = f"{quote(path, safe='/@')}:streamGenerateContent"
        self._past = Past(self._name, account.base_url, lambda part: take(model, part))
        asked = msgspec.structs.replace(account, query={**account.query, "alt": "sse"})
        self._wire = Wire(asked, {"x-goog-api-key": account.key} if account.key else {}, http)

    @property
    def name(self) -> str:
        """What this model is called in logs."""
        return self._name

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer ``prompt``. Raises ``ModelError`` and nothing else."""
        options = read(prompt.options)
        prompt, notices = self._past.of(prompt)
        for notice in notices:
            yield notice
        body = to_request(self._model, prompt, options)
        events = Events(self._model, forced_tool(self._model, prompt, options))
        with self._wire.hiding(options.headers):
            async with aclosing(self._wire.events(self._path, body, headers=options.headers)) as items:
                async for item in items:
                    for chunk in events.feed(item.data):
                        yield self._past.marked(chunk)
            for chunk in events.end():
                yield self._past.marked(chunk)

    async def close(self) -> None:
        """Close the connections, unless they are somebody else's."""
        await self._wire.close()
