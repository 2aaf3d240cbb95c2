"""Anthropic Messages: the wire of Claude, and of servers that speak it."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from vaka.core.ports.model import Chunk, Prompt
from vaka.core.types.errors import StreamCut
from vaka.models.anthropic_events import Events
from vaka.models.anthropic_history import take
from vaka.models.anthropic_request import Request, Ttl, to_request
from vaka.models.http import Account, Http, Wire
from vaka.models.past import Past

__all__ = ["BASE_URL", "VERSION", "Anthropic", "Events", "Request", "to_request"]

BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"


class Anthropic:
    """A model that is asked over Anthropic Messages.

    ``bearer`` sends the key as a token, as gateways want it. ``cache`` marks prompts for the provider's cache, unless a
    prompt says otherwise; what is marked is kept for ``cache_ttl``.
    """

    def __init__(  # noqa: PLR0913  # facts, each of its own
        self,
        model: str,
        account: Account,
        *,
        http: Http | None = None,
        name: str = "",
        max_tokens: int | None = None,
        cache: bool = True,
        cache_ttl: Ttl = "5m",
        bearer: bool = False,
    ) -> None:
        self._model, self._name = model, name or f"anthropic/{model}"
        self._max_tokens, self._cache = max_tokens, cache
        self._ttl: Ttl = cache_ttl
        self._past = Past(self._name, account.base_url, lambda part: take(model, part))
        auth = {"authorization": f"Bearer {account.key}"} if bearer else {"x-api-key": account.key}
        self._wire = Wire(account, {"anthropic-version": VERSION, **(auth if account.key else {})}, http)
        self._path = "messages" if account.base_url.rstrip("/").endswith("/v1") else "v1/messages"

    @property
    def name(self) -> str:
        """What this model is called in logs."""
        return self._name

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer ``prompt``."""
        prompt, notices = self._past.of(prompt)
        for notice in notices:
            yield notice
        request = to_request(self._model, prompt, max_tokens=self._max_tokens, cache=self._cache, cache_ttl=self._ttl)
        events = Events(request.answer)
        with self._wire.hiding(request.headers):
            async with aclosing(self._wire.events(self._path, request.body, headers=request.headers)) as items:
                async for item in items:
                    for chunk in events.feed(item.data, item.event):
                        yield self._past.marked(chunk)
                    if events.done:
                        return
        raise StreamCut(f"the answer of {self._name} was cut: it ended without message_stop")

    async def close(self) -> None:
        """Close the connections, unless they are shared."""
        await self._wire.close()
