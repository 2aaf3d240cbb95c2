"""Prices of tokens and output limits, by the names of models."""

from types import SimpleNamespace

import pytest

from vaka.core.types.errors import ConfigError
from vaka.core.types.message import Usage
from vaka.models.catalog import FREE, Price, PriceList, known_context_window, list_prices, output_limit_of
from vaka.models.catalog import capabilities_of as facts

PRICES = PriceList()


def is_close(one: float | None, other: float) -> bool:
    return one is not None and abs(one - other) < 1e-12


def test_cached_tokens_have_their_own_price_and_the_rest_is_input() -> None:
    price = Price(input=10, output=50, cache_read=1, cache_write=12.5)
    usage = Usage(input=1_000_000, output=100_000, cache_read=600_000, cache_write=200_000)
    assert is_close(price.cost(usage), 0.2 * 10 + 0.6 * 1 + 0.2 * 12.5 + 0.1 * 50)


def test_tokens_without_a_price_of_their_own_cost_as_input_or_output() -> None:
    usage = Usage(input=1_000_000, output=1_000_000, cache_read=400_000, cache_write=100_000, reasoning=900_000)
    assert is_close(Price(input=2, output=8).cost(usage), 10)


def test_reasoning_may_cost_more_than_the_answer() -> None:
    price = Price(input=0, output=1, reasoning=3)
    assert is_close(price.cost(Usage(output=1_000_000, reasoning=250_000)), 0.75 + 0.75)
    assert is_close(price.output_token_cost(0), 3e-6)


def test_a_long_prompt_raises_the_price_of_the_whole_call() -> None:
    price = Price(input=2, output=10, cache_read=1, long=1000, long_input=2.0, long_output=1.5)
    assert is_close(price.cost(Usage(input=1000, output=100)), 0.003)
    assert is_close(price.cost(Usage(input=1001, output=100, cache_read=1)), (1000 * 4 + 2 + 100 * 15) / 1e6)
    assert (price.output_token_cost(1000), price.output_token_cost(1001)) == (10e-6, 15e-6)


def test_more_cached_tokens_than_input_cost_no_more_than_the_input() -> None:
    assert is_close(Price(input=4, output=0, cache_read=1).cost(Usage(input=10, cache_read=50, cache_write=9)), 10e-6)


@pytest.mark.parametrize(
    ("name", "vendor", "entry"),
    [
        ("claude-opus-4-5-20251101", "anthropic", "claude-opus-4-5"),
        ("claude-opus-4-20250514", "anthropic", "claude-opus-4"),
        ("claude-3-7-sonnet-latest", "anthropic", "claude-3-7-sonnet"),
        ("anthropic/claude-opus-5-5", "anthropic", "claude-opus-5-5"),
        ("openai/gpt-5.4-mini-2026-03-05", "openai", "gpt-5.4-mini"),
        ("openai-chat/gpt-4o-2024-05-13", "openai", "gpt-4o-2024-05-13"),
        ("openai-chat/gpt-4o-2024-08-06", "openai", "gpt-4o"),
        ("gemini/gemini-2.5-flash-preview-09-2025", "google", "gemini-2.5-flash"),
        ("google/models/gemini-3.1-pro-preview", "google", "gemini-3.1-pro"),
        ("codestral-latest", "mistral", "codestral"),
        ("deepseek/deepseek-v4-pro", "deepseek", "deepseek-v4-pro"),
    ],
)
def test_a_dated_name_has_the_price_of_its_model(name: str, vendor: str, entry: str) -> None:
    assert PRICES.find(name) is list_prices()[vendor][entry]


@pytest.mark.parametrize(
    "name",
    [
        "claude-opus-5-7",
        "claude-fable-5-2",
        "gpt-5.4-turbo",
        "gpt-5.4-pro-max",
        "gpt-55",
        "mistral-large-latest",
        "openrouter/anthropic/claude-opus-5-5",
        "ollama/deepseek-v4-pro",
        "anthropic/gpt-5.4",
        "",
        "/",
        "unknown/x",
    ],
)
def test_a_model_that_is_not_in_the_table_has_no_price(name: str) -> None:
    assert PRICES.find(name) is None
    assert PRICES.cost(name, Usage(input=1)) is None


def test_overrides_take_precedence_and_the_longest_name_wins() -> None:
    prices = PriceList(
        {
            "claude-opus-5-5": {"input": 1, "output": 2},
            "azure/gpt-5.4": Price(input=3, output=4),
            "ollama/*": FREE,
            "ollama/big-*": SimpleNamespace(input=5, output=6, cache_read=None, cache_write=None),
        }
    )
    names = [
        "anthropic/claude-opus-5-5-20260922",
        "azure/gpt-5.4-2026-03-05",
        "openai/gpt-5.4",
        "ollama/x",
        "ollama/big-y",
    ]
    found = [prices.find(name) for name in names]
    assert [price and price.input for price in found] == [1, 3, 2.5, 0, 5]


def test_an_invalid_price_is_an_error_with_the_expected_value() -> None:
    for wrong in ({"input": 1}, {"input": -1, "output": 1}, {"input": 1, "output": 1, "inptu": 2}, "free"):
        with pytest.raises(ConfigError, match=r"the price of 'x': .*expected US"):
            PriceList({"x": wrong})


def test_the_lookup_cache_is_bounded() -> None:
    prices = PriceList({"mine": FREE})
    for number in range(2000):
        assert prices.find(f"unknown-{number}x") is None
    assert prices.find("mine") is FREE


def test_the_table_is_plausible() -> None:
    for name, price in [entry for vendor in list_prices().values() for entry in vendor.items()]:
        assert 0 < price.input < (price.output or ("embedding" in name))
        assert price.cache_read is None or price.cache_read < price.input
        assert price.cache_write is None or price.cache_write > price.input


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


def test_a_context_window_is_that_of_the_longest_id_that_matches() -> None:
    known = {
        "anthropic/claude-sonnet-4-5": 200_000,
        "anthropic/claude-sonnet-4-6-20260201": 1_000_000,
        "openai/gpt-5-mini": 272_000,
        "gpt-4.1-nano": 1_047_576,
        "openai/o1-mini": 128_000,
        "o1": 200_000,
        "google/gemini-2.5-pro": 1_048_576,
        "openrouter/anthropic/claude-opus-4-1": 200_000,
        "house-70b": None,
        "openai/claude-opus-4-1": None,
    }
    assert {name: known_context_window(name) for name in known} == known
