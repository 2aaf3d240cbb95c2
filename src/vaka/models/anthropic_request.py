"""A prompt as a request to Anthropic Messages. Pure: equal prompts give equal bytes.

What the wire has no place for is left out: ``seed``, ``frequency_penalty``, ``presence_penalty``, and of ``metadata``
all but ``user_id``. Sampling is left out for a model that refuses it and while one thinks; a temperature above 1
becomes 1. A model that cannot be told not to think is told to think little.
"""

import re
from typing import Any, Literal, TypeAlias, cast

import msgspec

from vaka.core.ports.model import Prompt
from vaka.core.types.errors import BadRequest
from vaka.core.types.tool import ToolSpec
from vaka.models import options
from vaka.models.anthropic_facts import Facts, find
from vaka.models.anthropic_history import begins_with_thought, to_messages
from vaka.models.anthropic_schema import closed
from vaka.models.options import ModelOptions, Output, merged

Ttl: TypeAlias = Literal["5m", "1h"]

LEAST = 1024
"""Tokens a model thinks with at least."""
BREAKPOINTS = 4
TURNS = 3
"""Of how many of the last user messages the end is marked, at most."""
BUDGETS = {"minimal": 1024, "low": 4096, "medium": 10_000, "high": 20_000, "max": 60_000}
"""The tokens that an effort stands for, with models that know none."""

_ADAPTIVE = {"type": "adaptive", "display": "summarized"}  # some show no thoughts unless they are asked to
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent, and ``answer``: the tool whose arguments are the answer, when its shape is asked for that way."""

    body: dict[str, Any]
    answer: str = ""
    headers: dict[str, str] = {}


class _Mind(msgspec.Struct, frozen=True):
    """How the model is told to think."""

    field: dict[str, Any] | None = None
    effort: str | None = None
    thinks: bool = False


class _Shape(msgspec.Struct, frozen=True):
    """How the model is held to the shape of its answer: by the provider, or by a tool that takes the answer."""

    format: dict[str, Any] | None = None
    tool: ToolSpec | None = None


def to_request(
    model: str, prompt: Prompt, *, max_tokens: int | None = None, cache: bool = True, cache_ttl: Ttl = "5m"
) -> Request:
    """Return the request for a prompt. Raises ``BadRequest`` for what this model cannot do, before anything is sent."""
    asked, facts = options.read(prompt.options), find(model)
    tokens = asked.max_tokens or max_tokens or facts.tokens
    shape = _shape(model, facts, prompt, asked)
    choice = _choice(prompt, asked, shape.tool)
    mind = _mind(model, facts, prompt, asked, tokens, forced=choice.get("type") in ("any", "tool"))
    messages = to_messages(model, prompt.messages, prefill=facts.prefill and not mind.thinks)
    tools = [_tool(spec) for spec in ([*prompt.tools, shape.tool] if shape.tool else prompt.tools)]
    system = [{"type": "text", "text": prompt.system}] if prompt.system.strip() else []
    if cache if asked.cache is None else asked.cache:
        mark = {"type": "ephemeral"} | ({"ttl": cache_ttl} if cache_ttl != "5m" else {})
        _mark(tools, system, messages, mark, most=BREAKPOINTS - _marks(asked.extra))
    config = {"effort": mind.effort, "format": shape.format}
    body: dict[str, Any] = {
        "model": model, "max_tokens": tokens, "stream": True, "system": system, "tools": tools, "tool_choice": choice,
        "thinking": mind.field, "output_config": {name: value for name, value in config.items() if value},
        **_sampling(facts, asked, mind), "stop_sequences": asked.stops,
        "metadata": _user(asked), "service_tier": asked.service_tier, "messages": messages,
    }  # fmt: skip
    body = {name: value for name, value in body.items() if value not in (None, "", [], {})}
    return Request(body=merged(body, asked.extra), answer=shape.tool.name if shape.tool else "", headers=asked.headers)


def _mind(model: str, facts: Facts, prompt: Prompt, asked: ModelOptions, tokens: int, *, forced: bool) -> _Mind:
    wanted = asked.reasoning not in (None, "none")
    if forced and not facts.forced:
        raise BadRequest(
            f"{model} cannot be forced to call a tool; use the tool choice 'auto' and say in words which tool to call"
        )
    if not facts.mind:
        return _Mind()
    if forced and wanted:
        raise BadRequest(
            f"{model} cannot think while it is forced to call a tool: leave out the option 'reasoning', "
            "or use the tool choice 'auto'"
        )
    quiet = not (wanted or (facts.thinks and asked.reasoning is None)) or forced or tokens <= LEAST
    if facts.always:
        return _Mind(_ADAPTIVE, "low" if quiet else _effort(asked), thinks=True)
    if quiet or (facts.mind == "budget" and not begins_with_thought(model, prompt.messages)):
        return _Mind({"type": facts.quiet} if facts.thinks else None)
    if facts.mind == "adaptive":
        return _Mind(_ADAPTIVE, _effort(asked), thinks=True)
    return _Mind({"type": "enabled", "budget_tokens": _budget(asked, tokens)}, thinks=True)


def _effort(asked: ModelOptions) -> str | None:
    return "low" if asked.effort == "minimal" else asked.effort


def _budget(asked: ModelOptions, tokens: int) -> int:
    """Return the tokens to think with; of all of them some are left for the answer."""
    if isinstance(asked.reasoning, int):
        budget = asked.reasoning if asked.reasoning < tokens else tokens * 3 // 4
    else:
        budget = min(BUDGETS[asked.reasoning or "medium"], tokens * 3 // 4)
    return max(budget, LEAST)


def _sampling(facts: Facts, asked: ModelOptions, mind: _Mind) -> dict[str, Any]:
    if mind.thinks or not facts.samples:
        return {}
    temperature = None if asked.temperature is None else min(asked.temperature, 1.0)
    top_p = asked.top_p if facts.alike or temperature is None else None
    return {"temperature": temperature, "top_p": top_p, "top_k": asked.top_k}


def _shape(model: str, facts: Facts, prompt: Prompt, asked: ModelOptions) -> _Shape:
    shape = asked.shape
    if shape is None:
        return _Shape()
    form = closed(shape.schema) if facts.format else None
    if form is not None and (shape.strict or not facts.forced):
        return _Shape(format={"type": "json_schema", "schema": form})
    if not facts.forced:
        raise BadRequest(
            f"{model} cannot answer in this shape: give each object of it its properties, and no schema that contains "
            "itself or admits any value"
        )
    if shape.schema.get("type") != "object":
        raise BadRequest(f"{model} answers in the shape of an object; expected a schema of the type 'object'")
    return _Shape(tool=_answer(shape, prompt))


def _answer(shape: Output, prompt: Prompt) -> ToolSpec:
    taken = {tool.name for tool in prompt.tools}
    name = shape.name
    while name in taken:
        name += "_"
    return ToolSpec(
        name=name, description=shape.description or "Give the answer. Call this once, when you have it.",
        parameters=shape.schema,
    )  # fmt: skip


def _choice(prompt: Prompt, asked: ModelOptions, answer: ToolSpec | None) -> dict[str, Any]:
    """Return which tool is to be called; nothing where that is left to the model and to the provider's default."""
    names = [tool.name for tool in prompt.tools]
    wanted = prompt.tool_choice
    if wanted not in _CHOICES and wanted not in names:
        raise BadRequest(f"the tool choice {wanted!r} names no tool; there are {', '.join(names) or 'none'}")
    if wanted == "required" and not names:
        raise BadRequest("the tool choice is 'required', but there are no tools")
    if answer is not None and wanted in ("auto", "none"):
        alone = wanted == "none" or not names
        return _one_call({"type": "tool", "name": answer.name} if alone else {"type": "any"}, asked, single=alone)
    if not names or (wanted == "auto" and asked.parallel_calls is not False):
        return {}
    return _one_call({"type": _CHOICES[wanted]} if wanted in _CHOICES else {"type": "tool", "name": wanted}, asked)


def _one_call(choice: dict[str, Any], asked: ModelOptions, *, single: bool = False) -> dict[str, Any]:
    if choice["type"] != "none" and (single or asked.parallel_calls is False):
        choice["disable_parallel_tool_use"] = True
    return choice


def _tool(spec: ToolSpec) -> dict[str, Any]:
    if not _NAME.fullmatch(spec.name):
        raise BadRequest(f"a tool cannot be called {spec.name!r}: expected up to 64 of A-Z, a-z, 0-9, _ and -")
    schema = spec.parameters if "type" in spec.parameters else {"type": "object", **spec.parameters}
    described = {"description": spec.description} if spec.description else {}
    return {"name": spec.name, **described, "input_schema": schema}


def _mark(
    tools: list[dict[str, Any]], system: list[dict[str, Any]], messages: list[dict[str, Any]], mark: dict[str, Any],
    *, most: int,
) -> None:  # fmt: skip
    """Mark where a prefix ends that is worth keeping, ``most`` times: tools, system, and the last user messages."""
    ends = [blocks[-1] for blocks in (tools, system) if blocks]
    ends = ends[max(len(ends) - max(most - 1, 0), 0) :]
    users = [message["content"][-1] for message in messages if message["role"] == "user"]
    last = min(TURNS, most - len(ends))
    for block in [*ends, *(users[-last:] if last > 0 else ())]:
        block["cache_control"] = mark


def _marks(value: Any) -> int:
    """Return how many marks somebody has set by hand."""
    items = cast("list[Any]", value)
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return ("cache_control" in table) + sum(map(_marks, table.values()))
    return sum(map(_marks, items)) if isinstance(value, list) else 0


def _user(asked: ModelOptions) -> dict[str, str]:
    user = asked.user or asked.metadata.get("user_id", "")
    return {"user_id": user} if user else {}
