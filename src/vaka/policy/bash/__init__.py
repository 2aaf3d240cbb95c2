"""The verdict on shell commands: read them as bash does, judge each of them, and the strictest verdict wins."""

from vaka.policy.bash.judging import judge
from vaka.policy.bash.patterns import match
from vaka.policy.bash.reading import LONGEST, read
from vaka.policy.bash.rules import Rules
from vaka.policy.bash.verdicts import Decision, Judgement, Rule, Subcommand
from vaka.policy.bash.words import Assignment, Hole, Redirection, Script, Simple, Unreadable, Word

__all__ = [
    "LONGEST",
    "Assignment",
    "Decision",
    "Hole",
    "Judgement",
    "Redirection",
    "Rule",
    "Rules",
    "Script",
    "Simple",
    "Subcommand",
    "Unreadable",
    "Word",
    "judge",
    "match",
    "read",
]
