"""Requests for prompts that use every feature, validated by the vendors' own types."""

from typing import Any

import pytest

from tests.models.hostile.adapters import WIRES, adapter, close_model
from tests.models.oracles.history_rules import check_history
from tests.models.oracles.prompts import BLOCK_MARKS, MODELS, PROMPTS
from tests.models.oracles.vendor_clients import REMOVED_FIELDS, check_request
from vaka.core.ports.model import Prompt
from vaka.core.types.errors import BadRequest
from vaka.testing.adapters import FULL_ANSWER, follow_up_prompt
from vaka.testing.fake_provider import FakeProvider, ProviderRequest
from vaka.testing.models import PROMPT, say, try_stream

NO_PLACE = {
    ("responses", "stop words"),
    ("responses", "sound"),
    ("anthropic", "sound"),
    ("claude-sonnet-5-5", "some tool"),
    ("claude-sonnet-5-5", "this tool"),
    ("claude-sonnet-5-5", "a loose shape"),
}
"""What a wire, or a model, has no place for."""


async def sent_request(wire: str, prompt: Prompt, model: str = "some-model") -> ProviderRequest:
    async with FakeProvider(say("Hi.")) as provider:
        asked = adapter(wire, provider.url, model=model)
        _, error = await try_stream(asked, prompt)
        await close_model(asked)
    if error is not None:
        assert provider.requests == []  # an invalid prompt is refused before anything is sent
        raise error
    return provider.requests[0]


async def request_error(wire: str, model: str, name: str) -> str:
    """Return why the request for a prompt is not valid, ``""`` if it is, or if it is refused as it should be."""
    refused = bool(NO_PLACE & {(wire, name), (model, name)})
    try:
        request = await sent_request(wire, PROMPTS[name], model)
        assert request.model == model
        check_request(wire, request.body)
        check_history(wire, request.body)
    except BadRequest as error:
        return "" if refused else f"refused: {error}"
    except (ValueError, AssertionError) as error:
        return f"invalid: {error}"
    return "not refused" if refused else ""


@pytest.mark.parametrize(("wire", "model"), [(wire, model) for wire, models in MODELS.items() for model in models])
async def test_every_request_fits_the_types_of_the_vendors_client(wire: str, model: str) -> None:
    errors = {name: await request_error(wire, model, name) for name in PROMPTS}
    assert {name: error for name, error in errors.items() if error} == {}


async def test_the_newest_models_of_anthropic_are_sent_nothing_that_they_do_not_take() -> None:
    for name in ("a conversation", "numbers"):
        request = await sent_request("anthropic", PROMPTS[name], "claude-sonnet-5-5")
        assert not {*REMOVED_FIELDS["anthropic"]} & {*request.body}


@WIRES
async def test_the_types_of_the_vendors_clients_accept_their_own_answers(wire: str) -> None:
    async with FakeProvider(FULL_ANSWER, say("Sure."), FULL_ANSWER, say("Sure.")) as provider:
        model = adapter(wire, provider.url)
        prompt: Prompt = PROMPT
        for _ in range(2):
            chunks, error = await try_stream(model, prompt)
            assert error is None
            prompt = follow_up_prompt(chunks, PROMPT)
            await try_stream(model, prompt)
        await close_model(model)
    for request in provider.requests:
        check_request(wire, request.body)
        check_history(wire, request.body)


@WIRES
async def test_private_reasoning_is_sent_to_no_other_provider(wire: str) -> None:
    request = await sent_request(wire, PROMPTS["thoughts of all providers"])
    text = request.raw.decode()
    assert [other for other, mark in BLOCK_MARKS.items() if mark in text and other != wire] == []
    assert wire == "chat" or BLOCK_MARKS[wire] in text  # OpenAI's own chat models take no thoughts back


@pytest.mark.parametrize(
    ("wire", "wrong"),
    [
        ("chat", {"messages": [{"role": "tool", "content": "x"}]}),
        ("chat", {"no_such_field": 1}),
        ("responses", {"input": [{"type": "function_call_output", "call_id": "c"}]}),
        ("anthropic", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
        ("anthropic", {"no_such_field": 1}),
        ("gemini", {"contents": [{"role": "user", "parts": [{"txt": "x"}]}]}),
    ],
)
async def test_the_oracle_rejects_an_invalid_request(wire: str, wrong: dict[str, Any]) -> None:
    request = await sent_request(wire, PROMPTS["a conversation"])
    check_request(wire, request.body)
    with pytest.raises((ValueError, AssertionError)):
        check_request(wire, {**request.body, **wrong})
