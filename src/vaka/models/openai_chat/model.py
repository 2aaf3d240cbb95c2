"""OpenAI Chat Completions: the model, and the request for a prompt as one vendor takes it."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from vaka.core.ports.model import Prompt
from vaka.core.types.errors import BadRequest
from vaka.core.types.tool import ToolSpec
from vaka.models.catalog.vendors import EFFORTS, VendorProfile
from vaka.models.json_values import unused_name
from vaka.models.openai_chat.events import ChatStreamDecoder
from vaka.models.openai_chat.messages import check_part, check_tool_name, to_messages
from vaka.models.options import ModelOptions, OutputFormat, merge_body, read_options
from vaka.models.provider_model import HttpRequestParts, ProviderModel
from vaka.models.schema_openai import strict_schema
from vaka.models.transport.client import Account, ConnectionPool

MAX_CACHE_KEY = 64
"""Characters of a cache key."""
JSON_INSTRUCTIONS = "Answer with one JSON object and nothing else. It must be valid against this JSON Schema:\n"


def to_request(
    model: str, prompt: Prompt, profile: VendorProfile = VendorProfile(), options: ModelOptions | None = None
) -> dict[str, Any]:
    """Return the body of the request. Raises ``BadRequest`` for what the vendor does not support."""
    options = options or read_options(prompt.options)
    output, system = options.output_format, prompt.system
    in_prompt = profile.output == "json_object"
    if output is not None and in_prompt:
        instructions = JSON_INSTRUCTIONS + msgspec.json.encode(output.schema).decode()
        system = f"{system}\n\n{instructions}" if system else instructions
    body: dict[str, Any] = {"model": model, "messages": to_messages(model, prompt, profile, system), "stream": True}
    if profile.usage:
        body["stream_options"] = {"include_usage": True}
    body |= _tool_fields(prompt, profile, options)
    if output is not None and profile.output != "tool":
        body["response_format"] = {"type": "json_object"} if in_prompt else _response_format(output, profile)
    body |= _sampling_fields(model, profile, options)
    body |= _reasoning_fields(profile, options)
    body |= _account_fields(prompt, profile, options)
    return merge_body(merge_body(body, profile.body), options.extra)


def answer_tool_name(prompt: Prompt, profile: VendorProfile, options: ModelOptions) -> str:
    """Return the name of the tool whose arguments are the answer, empty when there is none."""
    if options.output_format is None or profile.output != "tool":
        return ""
    return unused_name(check_tool_name(options.output_format.name), {spec.name for spec in prompt.tools})


def _response_format(output: OutputFormat, profile: VendorProfile) -> dict[str, Any]:
    strict = strict_schema(output.schema) if output.strict and profile.strict else None
    schema = output.schema if strict is None else strict
    fields: dict[str, Any] = {"name": check_tool_name(output.name), "schema": schema}
    if output.description:
        fields["description"] = output.description
    if profile.strict:
        fields["strict"] = strict is not None
    return {"type": "json_schema", "json_schema": fields}


def _tool_fields(prompt: Prompt, profile: VendorProfile, options: ModelOptions) -> dict[str, Any]:
    specs, choice = list(prompt.tools), prompt.tool_choice
    answer = answer_tool_name(prompt, profile, options)
    if answer and options.output_format is not None:
        specs, choice = _add_answer_tool(answer, options.output_format, specs, choice)
    sent, chosen = _tool_choice(profile, specs, choice)
    if not sent:
        return {}
    body: dict[str, Any] = {"tools": [_tool_definition(spec, profile) for spec in sent]}
    if chosen is not None:
        body["tool_choice"] = chosen
    if options.parallel_calls is not None and profile.parallel:
        body["parallel_tool_calls"] = options.parallel_calls
    return body


def _add_answer_tool(
    answer: str, output: OutputFormat, specs: list[ToolSpec], choice: str
) -> tuple[list[ToolSpec], str]:
    """Add the tool whose arguments are the answer: to be called now, or after the other tools."""
    spec = ToolSpec(
        name=answer, description=output.description or "Give the answer.", parameters=output.schema,
        strict=output.strict and strict_schema(output.schema) is not None,
    )  # fmt: skip
    if not specs or choice == "none":
        return [spec], answer
    return [*specs, spec], choice if choice not in {"auto", "required"} else "required"


def _tool_choice(profile: VendorProfile, specs: list[ToolSpec], choice: str) -> tuple[list[ToolSpec], Any]:
    """Return the tools to send and the choice among them, ``None`` for the vendor's default."""
    if choice == "auto" or (choice == "none" and not specs):
        return specs, None
    if choice == "none":
        return (specs, "none") if profile.choice_none else ([], None)
    if choice == "required":
        if profile.required and specs:
            return specs, profile.required
        if profile.choice_named and len(specs) == 1:
            return specs, _named_choice(specs[0].name)
    wanted = [spec for spec in specs if spec.name == choice]
    if wanted and profile.choice_named:
        return specs, _named_choice(choice)
    if wanted and profile.required:
        return wanted, profile.required  # the only tool is the one to be called
    if wanted or (specs and choice == "required"):
        raise BadRequest(f"{profile.name} cannot be made to call a tool (tool_choice {choice!r}); use 'auto'")
    names = ", ".join(repr(spec.name) for spec in specs) or "none"
    raise BadRequest(f"tool_choice {choice!r} needs such a tool; there are {names}")


def _named_choice(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def _tool_definition(spec: ToolSpec, profile: VendorProfile) -> dict[str, Any]:
    strict = strict_schema(spec.parameters, nullable=True) if spec.strict and profile.strict else None
    function: dict[str, Any] = {"name": check_tool_name(spec.name)}
    if spec.description:
        function["description"] = spec.description
    function["parameters"] = strict or {"type": "object", "properties": {}, **spec.parameters}
    if strict is not None:
        function["strict"] = True
    return {"type": "function", "function": function}


def _sampling_fields(model: str, profile: VendorProfile, options: ModelOptions) -> dict[str, Any]:
    stops = options.stop_texts
    if profile.stops and len(stops) > profile.stops:
        raise BadRequest(f"{profile.name}/{model} takes at most {profile.stops} stop texts, not {len(stops)}")
    fields: dict[str, Any] = {
        profile.max_tokens: options.max_tokens, "temperature": options.temperature, "top_p": options.top_p,
        "top_k": options.top_k if profile.top_k else None,
        "frequency_penalty": options.frequency_penalty if profile.penalties else None,
        "presence_penalty": options.presence_penalty if profile.penalties else None,
        "stop": stops or None, profile.seed: options.seed if profile.seed else None,
    }  # fmt: skip
    return {name: value for name, value in fields.items() if value is not None}


def _reasoning_fields(profile: VendorProfile, options: ModelOptions) -> dict[str, Any]:
    asked, wanted = options.reasoning, options.effort
    if asked is None or wanted is None or not profile.reasoning:
        return {}
    effort = _nearest_effort(wanted, profile.efforts)
    if profile.reasoning == "thinking":
        switch = {"thinking": {"type": "disabled" if wanted == "none" else "enabled"}}
        return switch if wanted == "none" or not effort else {**switch, "reasoning_effort": effort}
    if profile.reasoning == "enable_thinking":
        enabled: dict[str, Any] = {"enable_thinking": wanted != "none"}
        return {**enabled, "thinking_budget": asked} if isinstance(asked, int) else enabled
    if profile.reasoning == "reasoning":
        return {"reasoning": {"max_tokens": asked} if isinstance(asked, int) else {"effort": effort}}
    return {"reasoning_effort": effort} if effort else {}


def _nearest_effort(wanted: str, efforts: Sequence[str]) -> str:
    """Return the vendor's effort nearest to ``wanted``, the stronger of two; ``none`` only where it is wanted."""
    if wanted in efforts:
        return wanted
    place = EFFORTS.index(wanted)
    known = [effort for effort in efforts if effort != "none"]
    return min(known, key=lambda effort: (abs(EFFORTS.index(effort) - place), -EFFORTS.index(effort)), default="")


def _account_fields(prompt: Prompt, profile: VendorProfile, options: ModelOptions) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if options.user and profile.user:
        body[profile.user] = options.user
    if options.metadata and profile.metadata and options.extra.get("store") is True:
        body["metadata"] = options.metadata
    if options.service_tier and profile.tiers:
        body["service_tier"] = options.service_tier
    if prompt.session and profile.cache_key and options.cache is not False:
        body["prompt_cache_key"] = prompt.session[-MAX_CACHE_KEY:]
    return body


COMPLETIONS_PATH = "chat/completions"
AZURE_V1_VERSIONS = frozenset({"", "v1", "latest", "preview"})
"""Versions of Azure's API without a path for each deployment."""


class OpenAIChat(ProviderModel):
    """One model of a vendor of Chat Completions; ``profile`` has the vendor's peculiarities."""

    def __init__(
        self, model: str, account: Account, *, http: ConnectionPool | None = None, name: str = "",
        profile: VendorProfile = VendorProfile(),
    ) -> None:  # fmt: skip
        super().__init__(
            name or f"{profile.name}/{model}", account, request_path(model, account, profile),
            headers={**_key_header(account.key, profile), **profile.headers}, http=http,
            check_part=lambda part: check_part(model, part, profile),
        )  # fmt: skip
        self._model, self._profile = model, profile

    def _write_request(self, prompt: Prompt) -> HttpRequestParts:
        options = read_options(prompt.options)
        decoder = ChatStreamDecoder(self._profile, answer_tool_name(prompt, self._profile, options))
        return HttpRequestParts(to_request(self._model, prompt, self._profile, options), options.headers, decoder)


def request_path(model: str, account: Account, profile: VendorProfile) -> str:
    """Return the path of a request under the base URL; Azure has three kinds of base URL."""
    base = account.base_url.rstrip("/")
    if not profile.deployments or base.endswith("/v1") or "/deployments/" in base:
        return COMPLETIONS_PATH
    under = "" if base.endswith("/openai") else "openai/"
    if account.query.get("api-version", "") in AZURE_V1_VERSIONS:
        return f"{under}v1/{COMPLETIONS_PATH}"
    return f"{under}deployments/{quote(model, safe='')}/{COMPLETIONS_PATH}"


def _key_header(key: str, profile: VendorProfile) -> dict[str, str]:
    if not key:
        return {}
    return {profile.key_header: key} if profile.key_header else {"authorization": f"Bearer {key}"}
