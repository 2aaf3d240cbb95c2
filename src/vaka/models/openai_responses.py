"""OpenAI's Responses API, and servers that speak it.

A request is written by ``openai_responses_request``, events are read by ``openai_responses_events``; here is the I/O
between them.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from vaka.core.ports.model import Chunk, Prompt
from vaka.core.types.errors import StreamCut
from vaka.models.http import Account, Http, Wire
from vaka.models.openai_responses_events import Reader
from vaka.models.openai_responses_request import LLAMA, Facts, take, to_request
from vaka.models.options import read
from vaka.models.past import Past

__all__ = ["LLAMA", "Facts", "OpenAIResponses", "Reader", "to_request"]


class OpenAIResponses:
    """A model behind the Responses API; ``facts`` say what its server can do."""

    def __init__(
        self, model: str, account: Account, *, http: Http | None = None, name: str = "", facts: Facts = Facts()
    ) -> None:
        self._model, self._facts = model, facts
        self._name = name or f"openai/{model}"
        self._past = Past(self._name, account.base_url, lambda part: take(model, part, facts))
        self._wire = Wire(account, {"authorization": f"Bearer {account.key}"} if account.key else {}, http)

    @property
    def name(self) -> str:
        """What this model is called in logs."""
        return self._name

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer ``prompt``. Raises ``ModelError`` and nothing else."""
        prompt, notices = self._past.of(prompt)
        for notice in notices:
            yield notice
        body = to_request(self._model, prompt, self._facts)
        reader = Reader(None if self._facts.tells_length else body.get("max_output_tokens"))
        headers = read(prompt.options).headers
        with self._wire.hiding(headers):
            async with aclosing(self._wire.events("responses", body, headers=headers)) as items:
                async for item in items:
                    for chunk in reader.feed(item.data, item.event):
                        yield self._past.marked(chunk)
                    if reader.done:
                        return
        raise StreamCut(f"the answer of {self._name} was cut: the stream ended before response.completed")

    async def close(self) -> None:
        """Close the connections, unless they are shared."""
        await self._wire.close()
