"""Shell commands: parse them as bash does, judge each simple command, and return the strictest decision."""

from vaka.policy.bash.judge import judge_script
from vaka.policy.bash.parse.reader import MAX_ALLOWED_LENGTH, read_script
from vaka.policy.bash.parse.syntax import (
    Assignment,
    Redirection,
    ShellScript,
    SimpleCommand,
    UnreadableScript,
    Word,
    WordExpansion,
)
from vaka.policy.bash.rules import CommandRule, CommandRules, matches_command

__all__ = [
    "MAX_ALLOWED_LENGTH",
    "Assignment",
    "CommandRule",
    "CommandRules",
    "Redirection",
    "ShellScript",
    "SimpleCommand",
    "UnreadableScript",
    "Word",
    "WordExpansion",
    "judge_script",
    "matches_command",
    "read_script",
]
