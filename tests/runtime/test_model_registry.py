"""From names to models: providers, keys, addresses, configured models, tiers and fallbacks."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import collect_turn, read_log, runtime
from vaka.config.options import Models
from vaka.core.ports.model import CostEstimator, context_window_of
from vaka.core.types.errors import AuthenticationFailed, ConfigError, TurnError
from vaka.core.types.message import Image
from vaka.core.types.monitor import ModelFailed, ModelSelected
from vaka.core.types.progress import StepStarted
from vaka.runtime import providers
from vaka.runtime.model_registry import ModelRegistry
from vaka.runtime.options import Environment, Options
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.fake_provider import FakeProvider, Fault
from vaka.testing.models import ScriptedModel, say

KEY = "sk-a-key-that-stays-secret"


def environ_for(url: str, **more: str) -> dict[str, str]:
    """An environment in which every provider is at one address."""
    return {
        "OPENAI_BASE_URL": url,
        "ANTHROPIC_BASE_URL": url,
        "GEMINI_BASE_URL": url,
        "OPENAI_API_KEY": KEY,
        **more,
    }


def make_registry(environ: dict[str, str], **options: Any) -> ModelRegistry:
    """Return the models of a runtime with this environment."""
    return ModelRegistry(Options(environment=Environment(environ=environ), **options).build_model_config())


@pytest.mark.parametrize(
    ("name", "path", "headers"),
    [
        ("openai/gpt-x", "/v1/responses", {"authorization": f"Bearer {KEY}"}),
        ("openai-chat/gpt-x", "/v1/chat/completions", {"authorization": f"Bearer {KEY}"}),
        ("anthropic/claude-x", "/v1/messages", {"x-api-key": "ant-key-1"}),
        ("gemini/gemini-x", "/v1beta/models/gemini-x:streamGenerateContent", {"x-goog-api-key": "gem-key-1"}),
        ("google/gemini-x", "/v1beta/models/gemini-x:streamGenerateContent", {"x-goog-api-key": "gem-key-1"}),
        ("deepseek/chat", "/chat/completions", {"authorization": "Bearer deep-key"}),
        ("openrouter/some/model", "/api/v1/chat/completions", {"authorization": "Bearer open-key"}),
        ("azure/mine", "/openai/deployments/mine/chat/completions", {"api-key": "azure-key"}),
    ],
)
async def test_a_model_name_selects_the_provider_the_path_and_the_key(
    name: str, path: str, headers: dict[str, str]
) -> None:
    async with FakeProvider(say("Hi.")) as provider:
        environ = environ_for(
            provider.url,
            ANTHROPIC_API_KEY="ant-key-1",
            GEMINI_API_KEY="gem-key-1",
            DEEPSEEK_BASE_URL=provider.url,
            DEEPSEEK_API_KEY=" deep-key\n",
            OPENROUTER_BASE_URL=provider.url,
            OPENROUTER_API_KEY="open-key",
            AZURE_OPENAI_ENDPOINT=provider.url,
            AZURE_OPENAI_API_KEY="azure-key",
            OPENAI_API_VERSION="2024-10-21",
        )
        async with runtime(environment=Environment(environ=environ)) as rt:
            session = await rt.open(vaka.Agent("a", model=name), id="s")
            events = await collect_turn(session, "Hello.")
        request = provider.requests[0]
    assert request.path == path
    assert {key: request.headers.get(key) for key in headers} == headers
    assert [event.data.model for event in events if isinstance(event.data, StepStarted)] == [name]
    assert events[-1].data.text == "Hi."  # type: ignore[attr-defined]  # a turn that was completed


@pytest.mark.parametrize(
    ("model", "role", "bound"),
    [
        ("llama-3.3", "system", "max_tokens"),
        ("gpt-oss-120b", "system", "max_tokens"),
        ("gpt-5-mini", "developer", "max_completion_tokens"),
        ("openai/o3", "developer", "max_completion_tokens"),
    ],
)
async def test_a_compatible_server_gets_common_fields_unless_the_model_is_one_of_openai(
    model: str, role: str, bound: str
) -> None:
    async with (
        FakeProvider(say("Hi.")) as provider,
        runtime(environment=Environment(environ=environ_for(provider.url))) as rt,
    ):
        agent = vaka.Agent("a", model=f"openai-chat/{model}", instructions="Be brief.", options={"max_tokens": 99})
        await collect_turn(await rt.open(agent, id="s"), "Hello.")
        body = provider.requests[0].body
    assert (body["messages"][0]["role"], body[bound]) == (role, 99)


@pytest.mark.parametrize(
    ("provider", "given", "address"),
    [
        ("openai", "http://h", "http://h/v1"),
        ("openai", "http://h/v1/", "http://h/v1"),
        ("openai", "http://h/gateway", "http://h/gateway"),
        ("anthropic", "http://h", "http://h/v1"),
        ("anthropic", "http://h/v1", "http://h/v1"),
        ("anthropic", "http://h/claude/", "http://h/claude/v1"),
        ("gemini", "http://h", "http://h/v1beta"),
        ("gemini", "http://h/v1beta", "http://h/v1beta"),
        ("gemini", "http://h/v1/projects/p/publishers/google", "http://h/v1/projects/p/publishers/google"),
        ("ollama", "http://h:11434", "http://h:11434/v1"),
        ("groq", "https://h/", "https://h/openai/v1"),
        ("deepseek", "https://h", "https://h"),
        ("openai", "http://h/v1/responses", "http://h/v1"),
        ("openai-chat", "http://h/v1/chat/completions/", "http://h/v1"),
        ("anthropic", "http://h/v1/messages", "http://h/v1"),
        ("anthropic", "http://h/messages", "http://h/messages/v1"),
        ("gemini", "http://h/v1beta/models/", "http://h/v1beta"),
        ("mistral", "https://h/chat/completions", "https://h/v1"),
        ("openai", "http://responses", "http://responses/v1"),
    ],
)
def test_a_base_url_is_accepted_with_and_without_its_version(provider: str, given: str, address: str) -> None:
    known = providers.find(provider)
    assert known is not None
    account = providers.resolve_account(known, {known.base_env: given, known.key_env[0]: "k"})
    assert account.base_url == address


def test_a_bearer_token_is_used_without_a_key() -> None:
    known = providers.find("anthropic")
    assert known is not None
    both = {"ANTHROPIC_API_KEY": "key", "ANTHROPIC_AUTH_TOKEN": "token"}
    assert (found := providers.resolve_account(known, both)).key == "key"
    assert not found.bearer
    assert (found := providers.resolve_account(known, {**both, "ANTHROPIC_API_KEY": " "})).key == "token"
    assert found.bearer
    assert not providers.resolve_account(known, both, key="mine").bearer
    assert "token" not in repr(found)


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("openai/x", "OPENAI_API_KEY"),
        ("anthropic/x", "ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN"),
        ("gemini/x", "GEMINI_API_KEY or GOOGLE_API_KEY"),
        ("mistral/x", "MISTRAL_API_KEY"),
    ],
)
def test_the_error_for_a_missing_key_names_its_variable(name: str, variables: str) -> None:
    with pytest.raises(AuthenticationFailed, match=f"{name}: there is no key for .*; set {variables}"):
        make_registry({"OPENAI_API_KEY": ""}).find(name)


@pytest.mark.parametrize("key", ["sk-one\nsk-two", "sk-\u201cquoted\u201d", "sk-\x01", "sk-\u200bhidden"])
@pytest.mark.parametrize(
    ("name", "variable"),
    [("openai/x", "OPENAI_API_KEY"), ("anthropic/x", "ANTHROPIC_API_KEY"), ("gemini/x", "GEMINI_API_KEY")],
)
def test_the_error_for_a_malformed_key_does_not_contain_it(name: str, variable: str, key: str) -> None:
    with pytest.raises(AuthenticationFailed, match=f"in {variable} holds a character that no key has") as caught:
        make_registry({variable: key}).find(name)
    assert "sk-" not in str(caught.value)


def test_a_server_on_this_machine_needs_no_key() -> None:
    for base in ("http://localhost:8000", "http://127.3.2.1:1/v1", "http://[::1]:8000/v1"):
        assert make_registry({"OPENAI_BASE_URL": base}).find("openai/x").name == "openai/x"
    assert make_registry({"OLLAMA_BASE_URL": "http://box.lan:11434"}).find("ollama/x").name == "ollama/x"
    with pytest.raises(AuthenticationFailed):
        make_registry({"OPENAI_BASE_URL": "http://box.lan/v1"}).find("openai/x")


def test_the_error_for_an_invalid_address_does_not_contain_it() -> None:
    for base in (f"ftp://{KEY}@h", "h:1", "http://", "http://h:99999", f"http://h/v1?k={KEY}", "http://h/v1#k"):
        with pytest.raises(ConfigError, match="OPENAI_BASE_URL is not a base URL") as caught:
            make_registry({"OPENAI_BASE_URL": base, "OPENAI_API_KEY": KEY}).find("openai/x")
        assert KEY not in str(caught.value)
    with pytest.raises(ConfigError, match="azure has a base URL per customer; set AZURE_OPENAI_ENDPOINT"):
        make_registry({"AZURE_OPENAI_API_KEY": "k"}).find("azure/x")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("opnai/gpt-x", "did you mean 'openai/gpt-x'?"),
        ("antropic/c", "did you mean 'anthropic/c'?"),
        ("gpt-5-mini", "did you mean 'openai/gpt-5-mini'?"),
        ("claude-sonnet-5", "did you mean 'anthropic/claude-sonnet-5'?"),
        ("fsat", "did you mean 'fast'?"),
        ("loacl", "did you mean 'local'?"),
        ("OpenAI/gpt-x", "did you mean 'openai/gpt-x'?"),
        ("openai/", "name one of its models, as openai/NAME"),
        ("/gpt-x", "expected openai/…, anthropic/…, gemini/…"),
        ("zzz", "or a name of your settings; see `vaka models list`"),
        ("", "expected openai/…"),
    ],
)
def test_the_error_for_an_unknown_name_suggests_the_nearest_one(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_registry({}, models=Models(entries={"fast": {"model": "openai/x"}})).find(name)
    assert f"model {name!r} is not known; " in str(caught.value)
    assert hint in str(caught.value)


async def test_no_key_reaches_the_log_an_error_or_a_repr() -> None:
    store = MemoryStore()
    wrong = Fault(status=401, body=json.dumps({"error": {"message": f"bad key {KEY}"}}).encode())
    provider = FakeProvider(say(f"your key is {KEY}"), fault=[None, wrong])
    async with provider, runtime(store, environment=Environment(environ=environ_for(provider.url))) as rt:
        session = await rt.open(vaka.Agent("a", model="openai-chat/x"), id="s")
        await session.run("What is my key?")
        with pytest.raises(TurnError) as caught:
            await session.run("And now?")
    assert caught.value.code == "authentication"
    assert KEY not in str(caught.value)
    assert all(KEY.encode() not in event.stored for event in await read_log(store, "s"))


async def test_models_of_one_runtime_share_connections_and_are_closed_with_it() -> None:
    async with FakeProvider(say("Hi.")) as provider:
        async with runtime(environment=Environment(environ=environ_for(provider.url))) as rt:
            for name in ("openai/x", "openai-chat/x", "anthropic/x", "openai/x"):
                await (await rt.open(vaka.Agent("a", model=name))).run("Hello.")
            assert rt.models.find("openai/x") is rt.models.find("openai/x")
            client = rt.models.factory.http.client
            assert not client.is_closed
        assert client.is_closed
        assert isinstance(rt.models.find("openai/x"), CostEstimator)


class ClosingModel(ScriptedModel):
    """A model that notes that it was closed."""

    closed = 0

    async def close(self) -> None:
        self.closed += 1


async def test_a_passed_model_is_closed_by_its_owner_and_one_of_the_factory_by_the_runtime() -> None:
    mine, made = ClosingModel(say("Mine.")), ClosingModel(say("Made."))
    async with runtime(model=mine, models=Models(factory=lambda: made)) as rt:
        assert (await (await rt.open()).run("Hi.")).text == "Mine."
    asked: list[int] = []

    def factory() -> ClosingModel:
        asked.append(1)
        return made

    async with runtime(models=Models(factory=factory)) as rt:
        assert asked == []
        assert (await (await rt.open()).run("Hi.")).text == "Made."
    assert (mine.closed, made.closed, len(asked)) == (0, 1, 1)


async def test_configured_models_have_options_headers_and_limits() -> None:
    async with FakeProvider(say("Hi.")) as provider:
        entry = {
            "base_url": provider.url + "/v1",
            "wire": "chat",
            "model": "house-7b",
            "key_env": "HOUSE_KEY",
            "headers": {"x-team": "boats"},
            "options": {"temperature": 0.5, "max_tokens": 100},
            "concurrent": 1,
            "price": {"input": 1_000_000, "output": 0},
            "context_window": 32_000,
        }
        options: dict[str, Any] = {
            "models": Models(entries={"house": entry}),
            "environment": Environment(environ={"HOUSE_KEY": "house-key"}),
        }
        async with runtime(**options) as rt:
            assert context_window_of(rt.models.find("house")) == 32_000
            agent = vaka.Agent("a", model="house", options={"temperature": 0.25})
            response = await (await rt.open(agent)).run("Hello.")
    request = provider.requests[0]
    assert (request.headers["authorization"], request.headers["x-team"]) == ("Bearer house-key", "boats")
    assert (request.model, request.body["temperature"], request.body["max_tokens"]) == ("house-7b", 0.25, 100)
    assert response.usage.cost == response.usage.input > 0


async def test_a_configured_server_without_key_env_gets_no_key() -> None:
    async with FakeProvider(say("Hi.")) as provider:
        environ = environ_for(provider.url)
        entry = {"base_url": provider.url, "wire": "anthropic", "model": "m"}
        async with runtime(models=Models(entries={"own": entry}), environment=Environment(environ=environ)) as rt:
            await (await rt.open(vaka.Agent("a", model="own"))).run("Hello.")
    assert provider.requests[0].path == "/v1/messages"
    assert not {"x-api-key", "authorization"} & set(provider.requests[0].headers)
    remote = make_registry(
        {}, models=Models(entries={"own": {**entry, "base_url": "https://h.example", "key_env": "NOT_SET"}})
    )
    with pytest.raises(AuthenticationFailed, match="own/m: there is no key for own; set NOT_SET"):
        remote.find("own")


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"model": "opnai/x"}, r"models\.own: model 'opnai/x' is not known; did you mean 'openai/x'\?"),
        ({"provider": "opnai", "model": "x"}, r"models\.own: model 'opnai/x' is not known"),
        ({"model": "openai/x", "options": {"temprature": 1}}, r"models\.own\.options: there is no model option"),
        ({"model": "openai/x", "fallback": ["unknown"]}, "model 'unknown' is not known"),
        ({"modle": "x"}, r"models\.own: unknown key 'modle'"),
        (3, r"models\.own: expected a table"),
    ],
)
def test_an_invalid_configured_model_is_an_error_that_names_the_entry(entry: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        make_registry({"OPENAI_API_KEY": KEY}, models=Models(entries={"own": entry})).find("own")


async def test_a_fallback_answers_when_the_first_model_fails_and_one_without_a_key_is_skipped() -> None:
    store = MemoryStore()
    async with FakeProvider(say("x"), fault=Fault(status=503)) as broken, FakeProvider(say("Second.")) as working:
        entries: dict[str, Any] = {
            "first": {
                "base_url": broken.url + "/v1",
                "wire": "chat",
                "model": "one",
                "retries": 1,
                "fallback": ["second", "mistral/x"],
            },
            "second": {"base_url": working.url + "/v1", "wire": "responses", "model": "two"},
        }
        async with runtime(
            store, models=Models(entries=entries), environment=Environment(environ={}, clock=FakeClock(auto=True))
        ) as rt:
            response = await (await rt.open(vaka.Agent("a", model="first"), id="s")).run("Hello.")
        assert (response.text, len(broken.requests), len(working.requests)) == ("Second.", 2, 1)
    log = await read_log(store, "s")
    failed = [(event.data.model, event.data.code) for event in log if isinstance(event.data, ModelFailed)]
    assert failed == [("first/one", "model_unavailable")] * 2
    assert [event.data.model for event in log if isinstance(event.data, ModelSelected)] == ["second/two"]


def test_a_model_that_falls_back_on_itself_through_a_tier_is_an_error() -> None:
    entry = {"model": "openai/x", "fallback": ["low"]}
    looping = make_registry({"OPENAI_API_KEY": KEY}, models=Models(entries={"own": entry}, tiers={"low": "own"}))
    with pytest.raises(ConfigError, match="model 'own' falls back on itself"):
        looping.find("own")


def test_tiers_that_refer_to_each_other_are_an_error() -> None:
    looping = make_registry({}, models=Models(tiers={"low": "sonnet", "mid": "low", "high": "high"}))
    with pytest.raises(ConfigError, match="model 'low' falls back on itself: low → mid → low"):
        looping.find("low")
    with pytest.raises(ConfigError, match="model 'high' falls back on itself"):
        looping.find("opus")
    with pytest.raises(ConfigError, match="falls back on itself"):
        looping.choose(tier="mid")


async def test_only_headers_that_contain_keys_are_redacted_in_the_log() -> None:
    store = MemoryStore()
    async with FakeProvider(say("boats and planes and a-token-1, b-token-2, c-token-3")) as provider:
        headers = {"x-team": "planes", "x-token": "a-token-1", "x-auth": "Bearer b-token-2"}
        options = {"headers": {"x-api-key": "c-token-3"}}
        entry = {"base_url": provider.url, "wire": "chat", "model": "m", "headers": headers, "options": options}
        async with runtime(store, models=Models(entries={"own": entry})) as rt:
            await (await rt.open(vaka.Agent("a", model="own"), id="s")).run("Hello.")
    said = [event.data for event in await read_log(store, "s") if event.type == "message.completed"]
    assert [message.content[0].text for message in said] == ["boats and planes and [redacted], [redacted], [redacted]"]  # type: ignore[attr-defined]  # a message


async def test_a_model_without_function_calling_gets_tools_as_plain_text() -> None:
    @vaka.tool(effect="read")
    def weather(city: str) -> str:
        """Return the weather."""
        return f"{city}: rain"

    call_text = '```json\n{"tool": "weather", "parameters": {"city": "Hilo"}}\n```'
    async with FakeProvider(say(call_text), say("It rains.")) as provider:
        entry = {"base_url": provider.url, "wire": "chat", "model": "m", "text_calls": True}
        async with runtime(models=Models(entries={"own": entry})) as rt:
            response = await (await rt.open(vaka.Agent("a", model="own", tools=[weather]))).run("Rain?")
    assert (response.text, response.tool_calls) == ("It rains.", ("weather",))
    assert all("tools" not in request.body for request in provider.requests)


async def test_the_number_of_retries_is_a_setting() -> None:
    provider = FakeProvider(say("x"), fault=Fault(status=503))
    async with (
        provider,
        runtime(models=Models(retries=0), environment=Environment(environ=environ_for(provider.url))) as rt,
    ):
        session = await rt.open(vaka.Agent("a", model="openai/x"))
        with pytest.raises(TurnError):
            await session.run("Hello.")
    assert len(provider.requests) == 1


async def test_model_files_define_model_names(tmp_path: Path) -> None:
    async with FakeProvider(say("Hi.")) as provider:
        file = tmp_path / "house.json"
        definition = {
            "schema": "openai/chat/v1",
            "type": "generator",
            "api_key": "$HOUSE_KEY",
            "base_url": provider.url + "/v1",
            "models": [
                {
                    "name": "house/small",
                    "model": "small-1",
                    "use_system_role": True,
                    "support_json_output": False,
                    "support_text_only": True,
                    "generate_params": {"temperature": 0.5},
                    "invoke_params": {"max_tokens": 7},
                }
            ],
        }
        file.write_text(json.dumps(definition))
        (tmp_path / "other.json").write_text(
            json.dumps({"schema": "gemini/v1", "type": "generator", "api_key": "$MISSING", "models": []})
        )
        options: dict[str, Any] = {
            "models": Models(files=(str(tmp_path),)),
            "environment": Environment(environ={"HOUSE_KEY": "house-key"}),
        }
        async with runtime(**options) as rt:
            agent = vaka.Agent("a", model="house/small", instructions="Be brief.")
            session = await rt.open(agent)
            await session.run("Hello.")
            await session.run("As data.", options={"output": {"type": "object", "properties": {}}})
            with pytest.raises(ConfigError, match=r"did you mean 'house/small'\? \(.*other.json: left out: "):
                rt.models.find("house/smal")
    plain, shaped = (request.body for request in provider.requests)
    assert plain["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (plain["temperature"], "max_tokens" in plain) == (0.5, False)
    assert (shaped["max_tokens"], shaped["tool_choice"]["function"]["name"]) == (
        7,
        shaped["tools"][0]["function"]["name"],
    )
    assert provider.requests[0].headers["authorization"] == "Bearer house-key"


def test_a_model_file_without_an_address_uses_the_api_of_its_schema(tmp_path: Path) -> None:
    for wire in ("openai/chat/v1", "openai/responses/v1", "anthropic/messages/v1", "gemini/v1"):
        file = tmp_path / "file.json"
        entry = {"name": "x", "model": "y"}
        file.write_text(json.dumps({"schema": wire, "type": "generator", "api_key": KEY, "models": [entry]}))
        found = make_registry({}, models=Models(files=(str(file),))).find("x")
        assert (found.name, KEY in repr(found)) == ("x", False)


@pytest.mark.parametrize("wire", ["openai/chat/v1", "openai/responses/v1", "anthropic/messages/v1", "gemini/v1"])
async def test_support_text_only_of_a_model_file_replaces_images_by_notes(tmp_path: Path, wire: str) -> None:
    picture = Image(data="iVBORw0KGgo=", media_type="image/png")
    async with FakeProvider(say("Yes.")) as provider:
        file = tmp_path / "file.json"
        entry = {"name": "x", "model": "y", "support_text_only": True}
        definition = {"schema": wire, "type": "generator", "base_url": provider.url, "api_key": KEY, "models": [entry]}
        file.write_text(json.dumps(definition))
        async with runtime(models=Models(files=(str(file),)), environment=Environment(environ={})) as rt:
            session = await rt.open(vaka.Agent("a", model="x"))
            with pytest.raises(TurnError, match="cannot take this image"):
                await session.run((picture,))
            assert (await session.run("Then without.")).text == "Yes."
            assert (await session.run("And now?")).text == "Yes."
    assert [picture.data in request.raw.decode() for request in provider.requests] == [False, False]
    assert all("left out: this model cannot take it" in request.raw.decode() for request in provider.requests)


async def test_a_budget_lowers_max_tokens_of_the_settings_and_never_raises_it() -> None:
    async with FakeProvider(say("Hi.")) as provider:
        entry = {
            "base_url": provider.url,
            "wire": "anthropic",
            "model": "m",
            "options": {"max_tokens": 50},
            "price": {"input": 1, "output": 1},
        }
        async with runtime(
            models=Models(entries={"own": entry, "other": {**entry, "fallback": ["own"]}}, tiers={"low": "own"})
        ) as rt:
            for name in ("own", "low", "other"):
                for most in (5000, 30):
                    agent = vaka.Agent("a", model=name, limits=vaka.Limits(max_tokens=most))
                    await (await rt.open(agent)).run("Hi.")
    asked = [request.body["max_tokens"] for request in provider.requests]
    assert [most == 50 for most in asked] == [True, False] * 3
    assert max(asked[1::2]) < 30


async def test_max_tokens_of_a_request_is_limited_to_the_rest_of_the_budget() -> None:
    """Unless the model cannot write so much anyway; and money buys as many tokens as it does."""
    asked: list[Any] = []
    async with (
        FakeProvider(say("Hi.")) as provider,
        runtime(environment=Environment(environ=environ_for(provider.url))) as rt,
    ):
        for name in ("anthropic/claude-sonnet-4-5", "openai/gpt-5", "openai-chat/gpt-4o", "gemini/gemini-2.5-pro"):
            for limits in (vaka.Limits(max_tokens=20_000), vaka.Limits(max_cost=0.3)):
                await (await rt.open(vaka.Agent("a", model=name, limits=limits))).run("x" * 4000)
                body = provider.requests[-1].body
                asked.append(
                    body.get("max_tokens")
                    or body.get("max_output_tokens")
                    or body.get("max_completion_tokens")
                    or body.get("generationConfig", {}).get("maxOutputTokens")
                )
    # 1000 tokens are sent; 300,000 µ$ less 3000, at 15 µ$ a token, then less 1250 at 10; gpt-4o writes 16,384 at most
    assert asked == [19_000, 19_800, 19_000, 29_875, None, None, 19_000, 29_875]


async def test_a_budget_in_money_needs_a_price() -> None:
    async with FakeProvider(say("Hi.")) as provider:
        limits = vaka.Limits(max_cost=1.0)
        environ = environ_for(provider.url)
        async with runtime(environment=Environment(environ=environ)) as rt:
            with pytest.raises(TurnError) as caught:
                await (await rt.open(vaka.Agent("a", model="openai/unheard-of", limits=limits))).run("Hi.")
            assert caught.value.code == "config"
            assert 'prices."openai/unheard-of" = { input = ' in str(caught.value)
        assert provider.requests == []
        async with runtime(
            environment=Environment(environ=environ),
            models=Models(prices={"openai/unheard-of": {"input": 1, "output": 1}}),
        ) as rt:
            agent = vaka.Agent("a", model="openai/unheard-of", limits=limits)
            assert (await (await rt.open(agent)).run("Hi.")).usage.cost > 0
    assert len(provider.requests) == 1


@pytest.mark.parametrize(("serves", "loaded"), [(False, "httpx2"), (True, "aiohttp")])
def test_only_a_server_sends_requests_with_aiohttp(serves: bool, loaded: str) -> None:
    program = f"""
import asyncio, sys, vaka, uvloop
from vaka.testing.fake_provider import FakeProvider
from vaka.testing import say
async def main():
    async with FakeProvider(say("Aloha.")) as provider:
        environ = {{"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{{provider.url}}/v1"}}
        async with vaka.Runtime(environment=vaka.Environment(environ=environ)) as runtime:
            if {serves}:
                from vaka.server.app import open_service
                await open_service(runtime, [vaka.Agent("a", model="openai/gpt-6")])
            session = await runtime.open(vaka.Agent("a", model="openai/gpt-6"))
            assert (await session.run("Hi.")).text == "Aloha."
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
print("aiohttp" if "aiohttp" in sys.modules else "httpx2")
"""
    ended = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr, ended.returncode) == (f"{loaded}\n", "", 0)


def test_a_runtime_imports_a_provider_api_only_when_a_model_needs_it() -> None:
    program = "import sys, vaka; vaka.Runtime(model='openai/x', models=vaka.Models(entries={})); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert (
        not {"httpx2", "yaml", "vaka.models.transport.client", "vaka.runtime.model_factory", "vaka.config.model_files"}
        & loaded
    )
