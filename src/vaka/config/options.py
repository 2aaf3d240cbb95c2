"""The options of a runtime in groups; their marks make flags, variables, settings keys and the reference."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from vaka.core.ports.env import AskMode
from vaka.core.ports.policy import Policy
from vaka.core.types.keywords import Flag, Key, UnevaluatedSignature
from vaka.core.types.tool import Mode


class OptionGroup(msgspec.Struct, frozen=True, kw_only=True, metaclass=UnevaluatedSignature):
    """Options that belong together. Every field has a safe default; a sequence is stored as a tuple."""

    def __post_init__(self) -> None:
        for name, default in zip(self.__struct_fields__, self.__struct_defaults__, strict=True):
            value = getattr(self, name)
            if default != () or isinstance(value, tuple):
                continue
            if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
                raise TypeError(f"{name} must be a sequence, not {type(value).__name__}: {repr(value)[:80]}")
            msgspec.structs.force_setattr(self, name, tuple(value))


class PermissionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An approval that a turn requests, for ``Permissions.handler``."""

    tool_name: str
    tool_params: Mapping[str, Any]
    session_id: str
    rule: str
    reason: str
    approval: str
    """The id of the approval."""


PermissionRequestHandler: TypeAlias = Callable[[PermissionRequest], Awaitable[Literal["allow", "deny", "ask"]]]


class Permissions(OptionGroup, frozen=True, kw_only=True):
    """Which tool calls run, and what happens when a person must decide."""

    mode: Annotated[Mode, Flag("--permission-mode", "What happens to calls that no rule matches.", widens=True)] = (
        "default"
    )
    """The decision for calls that no rule matches."""
    allow: Annotated[
        Sequence[str],
        Flag("--allow", "What may run, such as 'Bash(npm test:*)'; may be repeated.", metavar="RULE"),
        Key(widens=True),
    ] = ()
    """Rules of calls that run without an approval, such as ``Bash(npm test)``."""
    confirm: Annotated[
        Sequence[str], Flag("--confirm", "What a person must approve; may be repeated.", metavar="RULE")
    ] = ()
    """Rules of calls that a person must approve, each time or for the session."""
    deny: Annotated[Sequence[str], Flag("--deny", "What must not run; may be repeated, and wins.", metavar="RULE")] = ()
    """Rules of calls that are refused."""
    ask: Annotated[
        AskMode | None,
        Flag(
            "--ask",
            "When a person must decide: wait (default at a terminal and of servers), suspend the turn, or deny "
            "(default elsewhere).",
            recorded=False,
        ),
    ] = None
    """What a turn does when a person has to decide. Default: ``wait``, but ``deny`` for the entry point ``ci``."""
    policy: Policy | None = None
    """The permission policy, in place of one made from the mode and the rules."""
    handler: PermissionRequestHandler | None = None
    """Called with each approval that a turn in this process requests. ``allow`` and ``deny`` decide it, ``ask`` leaves
    it to a person."""
    approver: str = "host"
    """The name that signs decisions of ``handler``."""
    question_timeout: float | None = None
    """Seconds until an unanswered question returns to the model, which then decides itself; default: no limit."""


OPTION_GROUPS: tuple[type[OptionGroup], ...] = (Permissions,)
"""The groups whose marked fields are settings."""
