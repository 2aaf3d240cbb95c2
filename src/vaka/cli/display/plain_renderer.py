"""Text of a conversation without colours: the parts of a tool call, and numbers."""

from typing import Any, cast

from vaka.cli.render import compact_json
from vaka.core.types.message import ToolCall, ToolResult
from vaka.policy.tool_targets import builtin_name_of, targets_of


def diff_of(result: ToolResult) -> str:
    """Return the diff of a file that a call has changed, ``""`` for none."""
    value: Any = result.value
    diff: Any = cast("dict[str, Any]", value).get("diff") if isinstance(value, dict) else None
    return diff if isinstance(diff, str) and not result.failed else ""


def summary_of(call: ToolCall) -> str:
    """Return a call in one line: its main argument, or all of them."""
    arguments: dict[str, Any] = dict(call.arguments)
    named = (arguments.get(name) for name in targets_of(builtin_name_of(call.name)).main_arguments)
    main = next((value for value in named if isinstance(value, str) and value), None)
    return main if main is not None else call.raw or (compact_json(arguments) if arguments else "")


def format_cost(cost: float) -> str:
    """Return US dollars; cents have two more digits while the sum is small."""
    return f"${cost:.2f}" if cost >= 1 else f"${cost:.4f}".rstrip("0").rstrip(".") if cost else ""


def format_tokens(count: int) -> str:
    return (
        f"{count / 1_000_000:.1f}M" if count >= 1_000_000 else f"{count / 1000:.1f}k" if count >= 1000 else str(count)
    )


def format_seconds(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds < 60 else f"{seconds // 60:.0f}m {seconds % 60:.0f}s"
