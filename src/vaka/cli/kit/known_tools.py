"""The names of tools that files may use."""

from collections.abc import Iterable

from vaka.policy.tool_targets import BUILTIN_TOOLS, FOREIGN_TOOLS, builtin_name_of


def find_unknown_tools(rules: Iterable[str]) -> list[str]:
    """Return the tools of rules that are neither built-in tools, nor tools of Claude Code or MCP servers."""
    names = [builtin_name_of(rule.partition("(")[0].strip()) for rule in rules]
    return [name for name in names if name not in {*BUILTIN_TOOLS, *FOREIGN_TOOLS} and not name.startswith("mcp__")]
