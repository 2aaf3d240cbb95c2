"""OpenAI's Chat Completions, and the many vendors that speak it in their own way."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import quote

from vaka.core.ports.model import Chunk, Prompt
from vaka.models.http import Account, Http, Wire
from vaka.models.openai_chat_events import Answer
from vaka.models.openai_chat_messages import take
from vaka.models.openai_chat_request import answer_tool, to_request
from vaka.models.options import read
from vaka.models.past import Past
from vaka.models.profiles import Profile

PATH = "chat/completions"
UNDATED = frozenset({"", "v1", "latest", "preview"})
"""Versions of Azure's API that have no path for each deployment."""


class OpenAIChat:
    """One model of a vendor that speaks Chat Completions, as ``profile`` says it does."""

    def __init__(
        self, model: str, account: Account, *, http: Http | None = None, name: str = "", profile: Profile = Profile()
    ) -> None:
        self._model, self._profile = model, profile
        self._name = name or f"{profile.name}/{model}"
        self._path = path(model, account, profile)
        self._past = Past(self._name, account.base_url, lambda part: take(model, part, profile))
        self._wire = Wire(account, {**_key(account.key, profile), **profile.headers}, http)

    @property
    def name(self) -> str:
        """What this model is called in logs."""
        return self._name

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer ``prompt``. Raises ``ModelError``; ``BadRequest`` before anything is sent for what cannot be."""
        options = read(prompt.options)
        prompt, notices = self._past.of(prompt)
        for notice in notices:
            yield notice
        body = to_request(self._model, prompt, self._profile, options)
        answer = Answer(self._profile, answer_tool(prompt, self._profile, options))
        with self._wire.hiding(options.headers):
            async with aclosing(self._wire.events(self._path, body, headers=options.headers)) as items:
                async for item in items:
                    for chunk in answer.feed(item):
                        yield self._past.marked(chunk)
                    if answer.whole:
                        return
            for chunk in answer.end():
                yield self._past.marked(chunk)

    async def close(self) -> None:
        """Let go of the connections, unless they are shared."""
        await self._wire.close()


def path(model: str, account: Account, profile: Profile) -> str:
    """Return where a request goes under the base URL: at Azure there are three kinds of address."""
    base = account.base_url.rstrip("/")
    if not profile.deployments or base.endswith("/v1") or "/deployments/" in base:
        return PATH
    under = "" if base.endswith("/openai") else "openai/"
    if account.query.get("api-version", "") in UNDATED:
        return f"{under}v1/{PATH}"
    return f"{under}deployments/{quote(model, safe='')}/{PATH}"


def _key(key: str, profile: Profile) -> dict[str, str]:
    if not key:
        return {}
    return {profile.key_header: key} if profile.key_header else {"authorization": f"Bearer {key}"}
