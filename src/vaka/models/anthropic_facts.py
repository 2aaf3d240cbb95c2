"""What is known of Anthropic's models: how they think, what they refuse, how much they write. Pure.

A version that is newer than those known here is taken to be like the newest one of its family; a model that is none of
the vendor's, behind the same wire, gets what every server of that wire understands.
"""

import re
from typing import Literal, TypeAlias

import msgspec

Mind: TypeAlias = Literal["", "budget", "adaptive"]
"""How a model is told to think: not at all, with a budget in tokens, or with an effort."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a model takes and what it answers with an error."""

    tokens: int = 8192
    """The bound of an answer when nobody gave one; leaves room in the window of the model."""
    mind: Mind = "budget"
    thinks: bool = False
    """It thinks unless it is told not to."""
    quiet: Literal["", "disabled", "between_tools"] = ""
    """What tells it not to; one that thinks and has no such word cannot be told."""
    samples: bool = True
    """It takes temperature, top_p and top_k."""
    alike: bool = True
    """It takes temperature and top_p together."""
    forced: bool = True
    """It can be forced to call a tool, when it does not think."""
    prefill: bool = True
    """A conversation may end with words of the model, to be continued."""
    format: bool = False
    """It takes the shape of its answer as a JSON Schema."""

    @property
    def always(self) -> bool:
        """Whether it thinks whatever it is told."""
        return self.thinks and not self.quiet


_V3 = Facts(tokens=4096, mind="")
_V35 = Facts(tokens=8192, mind="")
_V37 = Facts(tokens=32_000)
_V45 = Facts(tokens=32_000, alike=False, format=True)
_V46 = Facts(tokens=64_000, mind="adaptive", alike=False, prefill=False, format=True)
_V47 = Facts(tokens=64_000, mind="adaptive", samples=False, prefill=False, format=True)
_V5 = msgspec.structs.replace(_V47, thinks=True, quiet="disabled")
_SONNET55 = msgspec.structs.replace(_V5, quiet="between_tools", forced=False)
_ALWAYS = msgspec.structs.replace(_V5, quiet="", forced=False)

_KNOWN: dict[str, tuple[tuple[tuple[int, int], Facts], ...]] = {
    "opus": (
        ((3, 0), _V3), ((4, 0), _V37), ((4, 1), msgspec.structs.replace(_V37, alike=False)), ((4, 5), _V45),
        ((4, 6), _V46), ((4, 7), _V47), ((5, 0), _V5), ((5, 5), _ALWAYS),
    ),
    "sonnet": (
        ((3, 0), _V3), ((3, 5), _V35), ((3, 7), _V37), ((4, 5), _V45), ((4, 6), _V46), ((5, 0), _V5),
        ((5, 5), _SONNET55),
    ),
    "haiku": (((3, 0), _V3), ((3, 5), _V35), ((4, 5), _V45), ((5, 5), _V5)),
    "fable": (((5, 0), _ALWAYS),),
    "mythos": (((0, 0), _ALWAYS),),
}  # fmt: skip
_PLAIN = Facts()
_NEWEST = (99, 0)

_FAMILY = r"(?P<family>opus|sonnet|haiku|fable|mythos)"
_VERSION = r"(?P<major>\d{1,2})(?:[-.](?P<minor>\d{1,2}))?(?!\d)"
_NAMES = (
    re.compile(rf"claude-{_FAMILY}-{_VERSION}"),
    re.compile(rf"claude-{_VERSION}-{_FAMILY}"),
    re.compile(rf"claude-{_FAMILY}(?P<major>)(?P<minor>)"),
)


def find(model: str) -> Facts:
    """Return what is known of a model by its id, dated or not."""
    for pattern in _NAMES:
        name = pattern.search(model)
        if name:
            version = (int(name["major"]), int(name["minor"] or 0)) if name["major"] else _NEWEST
            known = [facts for since, facts in _KNOWN[name["family"]] if since <= version]
            return known[-1] if known else _PLAIN
    return _PLAIN
