"""The verdict on shell commands: read them as bash does, judge each of them, and the strictest verdict wins."""

from vaka.policy.bash.judge.judge import judge_script
from vaka.policy.bash.judge.patterns import matches_command
from vaka.policy.bash.judge.rules import CommandRule, CommandRules, DecisionKind, JudgedCommand, Judgement
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

__all__ = [
    "MAX_ALLOWED_LENGTH",
    "Assignment",
    "CommandRule",
    "CommandRules",
    "DecisionKind",
    "JudgedCommand",
    "Judgement",
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
