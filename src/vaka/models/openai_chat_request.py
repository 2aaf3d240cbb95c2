"""A prompt as a request of Chat Completions, in the words of one vendor. Pure.

Left out where a vendor has no place for them, since the answer is only a little less as it was wished: ``top_k``,
``seed``, the penalties, ``parallel_calls``, ``reasoning``, ``user``, ``service_tier``, ``cache``; and ``metadata``
unless ``extra`` says ``store``, without which OpenAI refuses it.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from vaka.core.ports.model import Prompt
from vaka.core.types.errors import BadRequest
from vaka.core.types.tool import ToolSpec
from vaka.models.openai_chat_messages import checked_name, to_messages
from vaka.models.options import ModelOptions, Output, merged, read
from vaka.models.profiles import EFFORTS, Profile
from vaka.models.strict import strict

KEY = 64
"""Characters a name for the cache may have."""
IN_WORDS = "Answer with one JSON object and nothing else. It must be valid against this JSON Schema:\n"


def to_request(
    model: str, prompt: Prompt, profile: Profile = Profile(), options: ModelOptions | None = None
) -> dict[str, Any]:
    """Return the body of the request. Raises ``BadRequest`` for what the vendor cannot take."""
    options = options or read(prompt.options)
    shape = options.shape
    told = shape is not None and profile.output == "json_object"
    body: dict[str, Any] = {
        "model": model,
        "messages": to_messages(model, prompt, profile, _instructions(prompt.system, shape if told else None)),
        "stream": True,
    }
    if profile.usage:
        body["stream_options"] = {"include_usage": True}
    body |= _tools(prompt, profile, options)
    if shape is not None and profile.output != "tool":
        body["response_format"] = {"type": "json_object"} if told else _format(shape, profile)
    body |= _sampling(model, profile, options)
    body |= _reasoning(profile, options)
    body |= _account(prompt, profile, options)
    return merged(merged(body, profile.body), options.extra)


def answer_tool(prompt: Prompt, profile: Profile, options: ModelOptions) -> str:
    """Return the name of the tool whose arguments are the answer, empty when there is none."""
    if options.shape is None or profile.output != "tool":
        return ""
    name, taken = checked_name(options.shape.name), {spec.name for spec in prompt.tools}
    while name in taken:
        name += "_"
    return name


def _instructions(system: str, told: Output | None) -> str:
    if told is None:
        return system
    words = IN_WORDS + msgspec.json.encode(told.schema).decode()
    return f"{system}\n\n{words}" if system else words


def _format(shape: Output, profile: Profile) -> dict[str, Any]:
    form = strict(shape.schema) if shape.strict and profile.strict else None
    asked: dict[str, Any] = {"name": checked_name(shape.name), "schema": shape.schema if form is None else form}
    if shape.description:
        asked["description"] = shape.description
    if profile.strict:
        asked["strict"] = form is not None
    return {"type": "json_schema", "json_schema": asked}


def _tools(prompt: Prompt, profile: Profile, options: ModelOptions) -> dict[str, Any]:
    specs, choice = list(prompt.tools), prompt.tool_choice
    answer = answer_tool(prompt, profile, options)
    if answer and options.shape is not None:
        specs, choice = _with_answer(answer, options.shape, specs, choice)
    sent, chosen = _choice(profile, specs, choice)
    if not sent:
        return {}
    body: dict[str, Any] = {"tools": [_tool(spec, profile) for spec in sent]}
    if chosen is not None:
        body["tool_choice"] = chosen
    if options.parallel_calls is not None and profile.parallel:
        body["parallel_tool_calls"] = options.parallel_calls
    return body


def _with_answer(answer: str, shape: Output, specs: list[ToolSpec], choice: str) -> tuple[list[ToolSpec], str]:
    """Add the tool that takes the answer: to be called now, or when the other tools have done their part."""
    spec = ToolSpec(
        name=answer, description=shape.description or "Give the answer.", parameters=shape.schema,
        strict=shape.strict and strict(shape.schema) is not None,
    )  # fmt: skip
    if not specs or choice == "none":
        return [spec], answer
    return [*specs, spec], choice if choice not in {"auto", "required"} else "required"


def _choice(profile: Profile, specs: list[ToolSpec], choice: str) -> tuple[list[ToolSpec], Any]:
    """Return the tools to send and the choice among them, ``None`` where the vendor's own is meant."""
    if choice == "auto" or (choice == "none" and not specs):
        return specs, None
    if choice == "none":
        return (specs, "none") if profile.choice_none else ([], None)
    if choice == "required":
        if profile.required and specs:
            return specs, profile.required
        if profile.choice_named and len(specs) == 1:
            return specs, _named(specs[0].name)
    wanted = [spec for spec in specs if spec.name == choice]
    if wanted and profile.choice_named:
        return specs, _named(choice)
    if wanted and profile.required:
        return wanted, profile.required  # no other tool is there to be called
    if wanted or (specs and choice == "required"):
        raise BadRequest(f"{profile.name} cannot be made to call a tool (tool_choice {choice!r}); use 'auto'")
    raise BadRequest(f"tool_choice {choice!r} needs such a tool; there are {_names(specs)}")


def _named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def _names(specs: Sequence[ToolSpec]) -> str:
    return ", ".join(repr(spec.name) for spec in specs) or "none"


def _tool(spec: ToolSpec, profile: Profile) -> dict[str, Any]:
    form = strict(spec.parameters, nullable=True) if spec.strict and profile.strict else None
    function: dict[str, Any] = {"name": checked_name(spec.name)}
    if spec.description:
        function["description"] = spec.description
    function["parameters"] = form or {"type": "object", "properties": {}, **spec.parameters}
    if form is not None:
        function["strict"] = True
    return {"type": "function", "function": function}


def _sampling(model: str, profile: Profile, options: ModelOptions) -> dict[str, Any]:
    stops = options.stops
    if profile.stops and len(stops) > profile.stops:
        raise BadRequest(f"{profile.name}/{model} takes at most {profile.stops} stop texts, not {len(stops)}")
    wishes: dict[str, Any] = {
        profile.max_tokens: options.max_tokens,
        "temperature": options.temperature,
        "top_p": options.top_p,
        "top_k": options.top_k if profile.top_k else None,
        "frequency_penalty": options.frequency_penalty if profile.penalties else None,
        "presence_penalty": options.presence_penalty if profile.penalties else None,
        "stop": stops or None,
        profile.seed: options.seed if profile.seed else None,
    }
    return {name: value for name, value in wishes.items() if value is not None}


def _reasoning(profile: Profile, options: ModelOptions) -> dict[str, Any]:
    asked, word = options.reasoning, options.effort
    if asked is None or word is None or not profile.reasoning:
        return {}
    effort = _nearest(word, profile.efforts)
    if profile.reasoning == "thinking":
        switch = {"thinking": {"type": "disabled" if word == "none" else "enabled"}}
        return switch if word == "none" or not effort else {**switch, "reasoning_effort": effort}
    if profile.reasoning == "enable_thinking":
        switched: dict[str, Any] = {"enable_thinking": word != "none"}
        return {**switched, "thinking_budget": asked} if isinstance(asked, int) else switched
    if profile.reasoning == "reasoning":
        return {"reasoning": {"max_tokens": asked} if isinstance(asked, int) else {"effort": effort}}
    return {"reasoning_effort": effort} if effort else {}


def _nearest(word: str, efforts: Sequence[str]) -> str:
    """Return the word that a vendor knows for an effort, the stronger of two; none at all is only meant as such."""
    if word in efforts:
        return word
    place = EFFORTS.index(word)
    known = [effort for effort in efforts if effort != "none"]
    return min(known, key=lambda effort: (abs(EFFORTS.index(effort) - place), -EFFORTS.index(effort)), default="")


def _account(prompt: Prompt, profile: Profile, options: ModelOptions) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if options.user and profile.user:
        body[profile.user] = options.user
    if options.metadata and profile.metadata and options.extra.get("store") is True:
        body["metadata"] = options.metadata
    if options.service_tier and profile.tiers:
        body["service_tier"] = options.service_tier
    if prompt.session and profile.cache_key and options.cache is not False:
        body["prompt_cache_key"] = prompt.session[-KEY:]
    return body
