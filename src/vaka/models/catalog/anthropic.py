"""Capabilities of Anthropic's models by family and version: thinking, sampling, forced tools, default max_tokens."""

import re
from typing import Literal, TypeAlias

import msgspec

ThinkingMode: TypeAlias = Literal["", "budget", "adaptive"]
"""How a model is told to think: not at all, with a budget in tokens, or with an effort."""


class AnthropicCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a model takes and what it answers with an error."""

    default_max_tokens: int = 8192
    """The bound of an answer when nobody gave one; leaves room in the window of the model."""
    thinking_mode: ThinkingMode = "budget"
    thinks_by_default: bool = False
    """It thinks unless it is told not to."""
    thinking_switch: Literal["", "disabled", "between_tools"] = ""
    """What tells it not to; one that thinks and has no such word cannot be told."""
    takes_sampling: bool = True
    """It takes temperature, top_p and top_k."""
    takes_temperature_and_top_p: bool = True
    """It takes temperature and top_p together."""
    can_force_tool: bool = True
    """It can be forced to call a tool, when it does not think."""
    can_prefill: bool = True
    """A conversation may end with words of the model, to be continued."""
    has_output_format: bool = False
    """It takes the shape of its answer as a JSON Schema."""

    @property
    def always_thinks(self) -> bool:
        """Whether it thinks whatever it is told."""
        return self.thinks_by_default and not self.thinking_switch


_V3 = AnthropicCapabilities(default_max_tokens=4096, thinking_mode="")
_V35 = AnthropicCapabilities(default_max_tokens=8192, thinking_mode="")
_V37 = AnthropicCapabilities(default_max_tokens=32_000)
_V45 = AnthropicCapabilities(default_max_tokens=32_000, takes_temperature_and_top_p=False, has_output_format=True)
_V46 = AnthropicCapabilities(
    default_max_tokens=64_000,
    thinking_mode="adaptive",
    takes_temperature_and_top_p=False,
    can_prefill=False,
    has_output_format=True,
)
_V47 = AnthropicCapabilities(
    default_max_tokens=64_000, thinking_mode="adaptive", takes_sampling=False, can_prefill=False, has_output_format=True
)
_V5 = msgspec.structs.replace(_V47, thinks_by_default=True, thinking_switch="disabled")
_SONNET55 = msgspec.structs.replace(_V5, thinking_switch="between_tools", can_force_tool=False)
_ALWAYS_THINKING = msgspec.structs.replace(_V5, thinking_switch="", can_force_tool=False)

_CAPABILITIES: dict[str, tuple[tuple[tuple[int, int], AnthropicCapabilities], ...]] = {
    "opus": (
        ((3, 0), _V3),
        ((4, 0), _V37),
        ((4, 1), msgspec.structs.replace(_V37, takes_temperature_and_top_p=False)),
        ((4, 5), _V45),
        ((4, 6), _V46),
        ((4, 7), _V47),
        ((5, 0), _V5),
        ((5, 5), _ALWAYS_THINKING),
    ),
    "sonnet": (
        ((3, 0), _V3),
        ((3, 5), _V35),
        ((3, 7), _V37),
        ((4, 5), _V45),
        ((4, 6), _V46),
        ((5, 0), _V5),
        ((5, 5), _SONNET55),
    ),
    "haiku": (((3, 0), _V3), ((3, 5), _V35), ((4, 5), _V45), ((5, 5), _V5)),
    "fable": (((5, 0), _ALWAYS_THINKING),),
    "mythos": (((0, 0), _ALWAYS_THINKING),),
}
_UNKNOWN_MODEL = AnthropicCapabilities()
_NEWEST = (99, 0)

_FAMILY = r"(?P<family>opus|sonnet|haiku|fable|mythos)"
_VERSION = r"(?P<major>\d{1,2})(?:[-.](?P<minor>\d{1,2}))?(?!\d)"
_MODEL_NAMES = (
    re.compile(rf"claude-{_FAMILY}-{_VERSION}"),
    re.compile(rf"claude-{_VERSION}-{_FAMILY}"),
    re.compile(rf"claude-{_FAMILY}(?P<major>)(?P<minor>)"),
)


def capabilities_of(model: str) -> AnthropicCapabilities:
    """Return what is known of a model by its id, dated or not."""
    for pattern in _MODEL_NAMES:
        name = pattern.search(model)
        if name:
            version = (int(name["major"]), int(name["minor"] or 0)) if name["major"] else _NEWEST
            known = [facts for since, facts in _CAPABILITIES[name["family"]] if since <= version]
            return known[-1] if known else _UNKNOWN_MODEL
    return _UNKNOWN_MODEL
