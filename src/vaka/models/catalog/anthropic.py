"""What each Claude model can do, by its family and version."""

import re
from typing import Literal

import msgspec
from msgspec.structs import replace


class AnthropicCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a model accepts, and what it answers with an error."""

    default_max_tokens: int = 8192
    """The length limit of an answer where the request has none; it leaves room in the context window."""
    thinking_mode: Literal["", "budget", "adaptive"] = "budget"
    """How thinking is asked for: not at all, with a budget in tokens, or with an effort."""
    thinks_by_default: bool = False
    thinking_switch: Literal["", "disabled", "between_tools"] = ""
    """The value that turns thinking off; a model that thinks by default and has none always thinks."""
    takes_sampling: bool = True
    """Accepts temperature, top_p and top_k."""
    takes_temperature_and_top_p: bool = True
    """Accepts temperature and top_p in one request."""
    can_force_tool: bool = True
    """Can be forced to call a tool while it does not think."""
    can_prefill: bool = True
    """Continues a conversation that ends with an assistant message."""
    has_output_format: bool = False
    """Accepts a JSON Schema for its answer."""

    @property
    def always_thinks(self) -> bool:
        return self.thinks_by_default and not self.thinking_switch


_V3 = AnthropicCapabilities(default_max_tokens=4096, thinking_mode="")
_V35 = AnthropicCapabilities(default_max_tokens=8192, thinking_mode="")
_V37 = AnthropicCapabilities(default_max_tokens=32_000)
_V41 = AnthropicCapabilities(default_max_tokens=32_000, takes_temperature_and_top_p=False)
_V45 = replace(_V41, has_output_format=True)
_V46 = replace(_V45, default_max_tokens=64_000, thinking_mode="adaptive", can_prefill=False)
_V47 = replace(_V46, takes_sampling=False, takes_temperature_and_top_p=True)
_V5 = replace(_V47, thinks_by_default=True, thinking_switch="disabled")
_SONNET55 = replace(_V5, thinking_switch="between_tools", can_force_tool=False)
_ALWAYS_THINKING = replace(_V5, thinking_switch="", can_force_tool=False)

_CAPABILITIES: dict[str, dict[tuple[int, int], AnthropicCapabilities]] = {
    "opus": {
        (3, 0): _V3, (4, 0): _V37, (4, 1): _V41, (4, 5): _V45, (4, 6): _V46, (4, 7): _V47, (5, 0): _V5,
        (5, 5): _ALWAYS_THINKING,
    },
    "sonnet": {
        (3, 0): _V3, (3, 5): _V35, (3, 7): _V37, (4, 5): _V45, (4, 6): _V46, (5, 0): _V5, (5, 5): _SONNET55,
    },
    "haiku": {(3, 0): _V3, (3, 5): _V35, (4, 5): _V45, (5, 5): _V5},
    "fable": {(5, 0): _ALWAYS_THINKING},
    "mythos": {(0, 0): _ALWAYS_THINKING},
}  # fmt: skip
"""Capabilities by family, each with the version since which they hold."""

_FAMILY = r"(?P<family>opus|sonnet|haiku|fable|mythos)"
_VERSION = r"(?P<major>\d{1,2})(?:[-.](?P<minor>\d{1,2}))?(?!\d)"
_MODEL_NAMES = (
    re.compile(rf"claude-{_FAMILY}-{_VERSION}"),
    re.compile(rf"claude-{_VERSION}-{_FAMILY}"),
    re.compile(rf"claude-{_FAMILY}(?P<major>)(?P<minor>)"),
)
_NEWEST = (99, 0)


def capabilities_of(model: str) -> AnthropicCapabilities:
    """Return what is known of a model by its id, dated or not; the defaults for an unknown one."""
    for pattern in _MODEL_NAMES:
        if name := pattern.search(model):
            version = (int(name["major"]), int(name["minor"] or 0)) if name["major"] else _NEWEST
            known = [facts for since, facts in _CAPABILITIES[name["family"]].items() if since <= version]
            return known[-1] if known else AnthropicCapabilities()
    return AnthropicCapabilities()
