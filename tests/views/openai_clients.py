"""Streams of objects, read and checked by OpenAI's own client. It is imported on first use, which takes long."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import httpx2
import pydantic


@cache
def _adapter(name: str) -> pydantic.TypeAdapter[Any]:
    from openai.types import chat, responses  # noqa: PLC0415  # importing the client takes long

    return pydantic.TypeAdapter(getattr(chat, name, None) or getattr(responses, name))


def check(name: str, value: object) -> Any:
    """Return a value as a type of OpenAI's client; raise if it has fields of other types or fields that are unknown."""
    parsed = _adapter(name).validate_python(value, strict=True)
    assert parsed.to_dict(mode="python") == value
    return parsed


def read_with_client(body: bytes, read: Callable[[Any], Any], *, status: int = 200) -> Any:
    """Return what ``read`` gets from a client whose server answers each request with ``body``."""
    import openai  # noqa: PLC0415  # importing the client takes long

    kind = "text/event-stream" if body.startswith((b"data:", b"event:")) else "application/json"
    answer = httpx2.Response(status, headers={"content-type": kind}, content=body)
    with (
        httpx2.Client(transport=httpx2.MockTransport(lambda _: answer)) as http,
        openai.OpenAI(api_key="k", http_client=http, max_retries=0) as client,
    ):
        return read(client)


def join_texts(chunks: Sequence[dict[str, Any]]) -> str:
    """Return the text of the deltas of chunks."""
    return "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk.get("choices", ()))
