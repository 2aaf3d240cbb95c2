"""The commands that a simple command runs: in its arguments, its options and its input."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from vaka.policy.bash.parse.hidden_programs import find_hidden_program, find_read_codes, find_unseen_code
from vaka.policy.bash.parse.inline_scripts import (
    InlineScript,
    ScriptText,
    find_inline_scripts,
    find_likely_commands,
    find_option_commands,
)
from vaka.policy.bash.parse.syntax import ShellScript, SimpleCommand, Words
from vaka.policy.bash.parse.words import ParseMismatch
from vaka.policy.bash.parse.wrappers import (
    EXACT_ONLY_WRAPPERS,
    REMOTE_RUNNERS,
    base_name,
    find_wrapped_commands,
    strip_wrappers,
)

ScriptReader: TypeAlias = Callable[[str, ScriptText | None], ShellScript]
"""Parses a script that has this input."""

_UNKNOWN_SCRIPT = "the script it runs is not known beforehand"


def add_nested_commands(
    simple: SimpleCommand, stdin: ScriptText | None, read_script: ScriptReader
) -> tuple[SimpleCommand, list[tuple[str, ShellScript]]]:
    """Return a command with the commands that it runs, and the scripts in it with their origins."""
    words = simple.words
    wrapped = find_wrapped_commands(words)
    forms = (words, *wrapped)
    found = list(dict.fromkeys(item for form in forms for item in find_inline_scripts(form, stdin)))
    scripts = [(item.origin, read_script(item.text.text, stdin)) for item in found if not item.text.unknown]
    uncertain = any(not item.text.certain and not item.text.unknown for item in found)
    hidden_input = next((_describe_unknown(item) for item in found if item.text.unknown), "")
    hidden_input = hidden_input or _first_reason(find_unseen_code(form, stdin) for form in forms)
    hidden_program = _first_reason(find_hidden_program(form) for form in forms)
    name = base_name(words[0].placeholder_text) if words else ""
    if name in EXACT_ONLY_WRAPPERS or name in REMOTE_RUNNERS:
        # Only an exact rule allows such a program, or it runs nothing on this machine: its script is not judged as
        # commands of its own.
        wrapped += tuple(form for _, script in scripts for inner in script.commands for form in inner.forms)
        hidden_program = hidden_program or _first_reason(_find_unseen(script) for _, script in scripts)
        if name in REMOTE_RUNNERS:
            remote = (command.hidden_input for _, script in scripts for command in script.commands)
            uncertain, hidden_input = False, hidden_input or _first_reason(remote)
            hidden_program = find_hidden_program(words)
            wrapped = tuple(form for form in wrapped if form and form[0].value is not None)
        scripts = []
    for text in dict.fromkeys(text for form in (words, *wrapped) for text in find_option_commands(form)):
        inner, reason = _read_optional_script(text, read_script)
        wrapped += inner
        hidden_program = hidden_program or reason
    codes = [(form, find_read_codes(form, stdin)) for form in (words, *wrapped)]
    likely = (text for form, read in codes for text in find_likely_commands(form, read))
    for text in dict.fromkeys(likely):
        wrapped += _read_optional_script(text, read_script)[0]
    complete = msgspec.structs.replace(
        simple,
        wrapped_commands=wrapped,
        unwrapped_words=strip_wrappers(words),
        doubt=_UNKNOWN_SCRIPT if uncertain else "",
        hidden_input=hidden_input,
        hidden_program=hidden_program,
        codes=tuple(dict.fromkeys(text for _, read in codes for text in read)),
    )
    return complete, scripts


def _describe_unknown(item: InlineScript) -> str:
    return f"{item.origin}: {_UNKNOWN_SCRIPT}"


def _read_optional_script(text: str, read_script: ScriptReader) -> tuple[tuple[Words, ...], str]:
    """Return the commands in a text that may be a script, and why it may run others."""
    try:
        script = read_script(text, None)
    except (ParseMismatch, LookupError, ValueError):
        return (), _UNKNOWN_SCRIPT
    return tuple(form for command in script.commands for form in command.forms if form), _find_unseen(script)


def _find_unseen(script: ShellScript) -> str:
    """Return why a script may run commands that are not among its own."""
    reasons = (command.doubt or command.hidden_input or command.hidden_program for command in script.commands)
    return _first_reason((*reasons, *script.doubts))


def _first_reason(reasons: Iterable[str]) -> str:
    return next((reason for reason in reasons if reason), "")
