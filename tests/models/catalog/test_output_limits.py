"""How long answers can get, as far as that is known."""

import pytest

from vaka.models.catalog import capabilities_of as facts
from vaka.models.catalog import output_limit_of


@pytest.mark.parametrize(
    ("wire", "model", "most"),
    [
        ("responses", "gpt-5", 128_000),
        ("responses", "gpt-5-mini-2025-08-07", 128_000),
        ("responses", "gpt-5-pro", 272_000),
        ("chat", "gpt-4o", 16_384),
        ("chat", "gpt-4o-2024-05-13", 4096),
        ("chat", "openai/gpt-4.1-mini", 32_768),
        ("chat", "o3-mini", 100_000),
        ("gemini", "models/gemini-2.5-pro", 65_536),
        ("gemini", "gemini-2.5-flash-image", None),
        ("responses", "gpt-5.1-chat-latest", None),
        ("chat", "gpt-4o-audio-preview", None),
        ("local", "local", 512),
        ("chat", "o30", None),
        ("responses", "gpt-5.4", None),
        ("chat", "my-deployment", None),
        ("chat", "", None),
    ],
)
def test_an_unknown_model_has_no_output_limit(wire: str, model: str, most: int | None) -> None:
    assert output_limit_of(wire, model) == most


@pytest.mark.parametrize("model", ["claude-opus-4-1", "claude-3-haiku-20240307", "glm-4.6"])
def test_over_anthropic_messages_the_limit_is_the_one_that_is_sent(model: str) -> None:
    assert output_limit_of("anthropic", model) == facts(model).default_max_tokens
