"""The text of a command or skill when it is used: arguments, outputs of commands and files are inserted."""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from vaka.core.loop.call_context import CallContext
from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.loop.permission import PermittedCall
from vaka.core.loop.run_tool import run_in_context
from vaka.core.loop.wait import DecisionPending
from vaka.core.ports.policy import GrantingPolicy, SessionPolicy
from vaka.core.types.control import StateChanged
from vaka.core.types.ids import JSON, CallId, MessageId
from vaka.core.types.message import ToolCall, ToolResult
from vaka.core.types.monitor import Logged
from vaka.core.types.state import OpenCall
from vaka.core.types.tool import PROTECTED_LAYER, Allow, Ask, Grant, ToolSpec, Verdict
from vaka.project.components import CommandFile, Skill

MAX_INLINED_BYTES = 256 * 1024
"""Bytes of a file that ``@file`` inserts."""
MAX_INLINED_TOTAL = 1024 * 1024
"""Bytes of all files that one command inserts."""
_READ = ToolSpec(name="Read", layer="builtin", effect="read")
"""The tool whose rules decide about a file that ``@file`` inserts."""
ALLOWED_KEY = "commands.allowed"
"""The session value with the ``allowed-tools`` of the command or skill that an agent uses in a turn."""

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})([^\n]*)")
_SHELL_BLOCK = re.compile(r"(?<!\S)!`([^`\n]+)`")
_CODE_SPAN = re.compile(r"(`[^`\n]+`)")
_FILE_REFERENCE = re.compile(r"(?<!\S)@((?:\\ |[^\s\\\0])+)(?=\s|$)")
_PUNCTUATION = ".,;:!?)]"
_PLACE = re.compile(r"\$(?:ARGUMENTS\[(\d{1,3})\]|(ARGUMENTS)\b|([0-9])(?![\d]|[.,]\d))")
_PLAIN_WORDS = re.compile(r"[\w@%+=:,./ -]*")
_READ_AGAIN = re.compile(
    r"\$\(|\(\(|\[\[|<<|<\(|\$'|`|\$\{\w+[^\w}]|\beval\b|\bxargs\b|\bssh\b|(?:^|[\s;&|({!])(?:let|declare|typeset|local"
    r"|readonly|unset|read|mapfile|getopts|trap|alias|(?:printf|test|\[)\s+-v)\s"
    r"|(?:^|\W)(?:\w*sh|python[\d.]*|node|perl|ruby)\s+-\w*[ce]\b"
)
"""Commands that read a part of their text as commands again, so that quoting arguments once is not enough."""
_COMMENT = re.compile(r"(?:^|[\s;&|()<>])#")
"""The possible beginning of a comment, in which quotes do not count."""

_PATTERN = re.compile(r"[*?\[\]{}()\\]")

Piece = tuple[Literal["text", "code", "command"], str]


class Arguments:
    """The arguments of a command, and their words."""

    def __init__(self, text: str, body: str) -> None:
        self.text = text.strip()
        try:
            self.words = shlex.split(self.text)
        except ValueError:
            self.words = self.text.split()
        places = [match for match in _PLACE.finditer(body) if match[3] != "0" or _counts_from_zero(body)]
        self._first = 0 if _counts_from_zero(body) else 1
        self.has_place = bool(places)

    def insert(self, text: str, *, keep: bool = False) -> str:
        """Replace the placeholders; ``keep`` leaves the placeholders of single words unchanged."""
        return _PLACE.sub(lambda match: match[0] if keep and not match[2] else self._value_of(match), text)

    def insert_into_command(self, command: str) -> str | None:
        """Replace the placeholders of a shell command so that each value stays one text; ``None`` if that is not sure.

        A value never ends the quotes it is in and never begins a command.
        """
        if _PLAIN_WORDS.fullmatch(self.text) or not _PLACE.search(command):
            return self.insert(command)
        if _READ_AGAIN.search(command) or _COMMENT.search(command) or not self.text.isprintable():
            return None
        parts = list[str]()
        quote = ""
        position = 0
        for match in _PLACE.finditer(command):
            before = command[position : match.start()]
            if before.endswith(("\\", "$")):  # it would change the meaning of the first quote
                return None
            quote = _quote_after(before, quote)
            parts += (before, self._quote(match, quote))
            position = match.end()
        return "".join([*parts, command[position:]])

    def _quote(self, match: "re.Match[str]", quote: str) -> str:
        if quote == "'":
            return self._value_of(match).replace("'", "'\\''")
        if quote == '"':
            return re.sub(r'([\\"$`])', r"\\\1", self._value_of(match))
        return shlex.join(self.words) if match[2] else shlex.quote(self._value_of(match))

    def _value_of(self, match: "re.Match[str]") -> str:
        if match[2]:
            return self.text
        if match[3] == "0" and self._first:
            return match[0]
        number = int(match[1]) if match[1] else int(match[3]) - self._first
        return self.words[number] if number < len(self.words) else ""


def _counts_from_zero(body: str) -> bool:
    """Return whether ``$0`` is the first argument, as in newer skills; otherwise ``$1`` is."""
    return re.search(r"\$0(?![\d]|[.,]\d)", body) is not None and "$2" not in body


def _quote_after(text: str, quote: str) -> str:
    """Return the quote that is open after a part of a shell command that begins in ``quote``."""
    position = 0
    while position < len(text):
        character = text[position]
        if character == "\\" and quote != "'":
            position += 1
        elif character in "'\"" and quote in ("", character):
            quote = "" if quote else character
        position += 1
    return quote


def split_body(body: str) -> Iterator[Piece]:
    """Yield the pieces of a text: commands in ``!`…``` and in code blocks that begin with ````!``, code, the rest."""
    fence, block = "", list[str]()
    for line in body.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if not fence and mark is None:
            for number, part in enumerate(_SHELL_BLOCK.split(line)):
                yield "command" if number % 2 else "text", part
            continue
        block.append(line)
        if mark is not None and not fence:
            fence = mark[1]
        elif mark is not None and mark[1].startswith(fence) and not mark[2].strip():
            yield from _read_block(block)
            fence, block = "", []
    yield "code", "".join(block)


def _read_block(lines: list[str]) -> Iterator[Piece]:
    """Yield the pieces of a whole code block."""
    mark = _FENCE.match(lines[0])
    if mark is not None and mark[2].strip() == "!" and "".join(lines[1:-1]).strip():
        yield "command", "".join(lines[1:-1]).strip()
        yield "text", "\n"
    else:
        yield "code", "".join(lines)


def _skill_head(skill: Skill) -> str:
    """Return where a skill has its files; those inside of a package are read by the tool itself."""
    files: list[str] = skill.embedded.list_files() if skill.embedded is not None else []
    more = f"Its files, which this tool reads with file=NAME: {', '.join(files)}\n" if files else ""
    return f"Base folder of this skill: {skill.folder}\n{more}\n"


class CommandTexts:
    """Makes the texts of commands and skills of a project, and records which tools they allow."""

    def __init__(self, root: Path, *, trusted: bool) -> None:
        self._root, self._trusted = root, trusted

    def _may_allow(self, component: CommandFile | Skill) -> bool:
        return self._trusted or component.embedded is not None

    async def expand(self, turn: Turn, component: CommandFile | Skill, arguments: str) -> str:
        """Return the text of a command or skill; from then on the agent may use its ``allowed-tools`` in this turn."""
        body = component.read_body().strip()
        if isinstance(component, Skill):
            body = body.replace("${CLAUDE_SKILL_DIR}", str(component.folder))
        given = Arguments(arguments, body)
        parts = list[str]()
        read = list[int]()
        for kind, piece in split_body(body):
            if kind == "command":
                parts.append(await self._run_block(turn, component, given, piece, len(parts)))
            elif kind == "code":
                parts.append(given.insert(piece, keep=not given.words))
            else:
                keep = isinstance(component, Skill) and not given.words
                parts.append(self._inline_files(turn, component, given.insert(piece, keep=keep), read))
        if given.text and not given.has_place:
            parts.append(self._inline_files(turn, component, f"\n\nArguments: {given.text}", read))
        self._allow_tools(turn, component)
        return (_skill_head(component) if isinstance(component, Skill) else "") + "".join(parts)

    def _allow_tools(self, turn: Turn, component: CommandFile | Skill) -> None:
        allowed = [*component.allowed_tools]
        if isinstance(component, Skill) and not _PATTERN.search(str(component.folder)):
            allowed.append(f"Read(/{component.folder}/**)")
        if not (self._may_allow(component) and allowed):
            return
        rules = [*_rules_in_use(turn), *allowed]
        value: JSON = {"turn": turn.id, "path": [*turn.path], "rules": [*dict.fromkeys(rules)]}
        turn.log.defer(turn.scope, StateChanged(key=ALLOWED_KEY, value=value))

    async def _run_block(
        self, turn: Turn, component: CommandFile | Skill, arguments: Arguments, text: str, number: int
    ) -> str:
        """Run a command of a text as a governed call of Bash and return its output; do not run it if the rules ask."""
        bash, command = turn.tools.get("Bash"), arguments.insert_into_command(text)
        if bash is None:
            return f"[{text}: not run, there is no tool Bash]"
        if command is None:
            return f"[{text}: not run, since the arguments have characters that could be read as commands]"
        id = CallId(f"block_{component.name}_{number}")
        call, end, verdict = await turn.middleware.run_before_tool(
            turn, ToolCall(id=id, name="Bash", arguments={"command": command})
        )
        if end is not None:
            return f"[{command}: not run, {end.text if isinstance(end, ToolResult) else end.reason}]"
        rules = component.allowed_tools if self._may_allow(component) else ()
        judged = _judge(turn, rules, call, bash.spec)
        if not _is_allowed(judged, verdict):
            return f"[{command}: not run, it is not allowed; add it to allowed-tools or to the permission rules]"
        permitted = PermittedCall(bash, call, judged.folder if isinstance(judged, Allow) else None)
        open_call = OpenCall(call=call, path=turn.path, message=MessageId(""), step=0, number=0)
        turn.log.defer(turn.scope, Logged(level="info", message=f"/{component.name} runs: {command}"))
        try:
            result = await run_in_context(permitted, CallContext(turn, open_call, permitted))
        except DecisionPending:
            return f"[{command}: not run, it waits for a person]"
        return result.text.strip().removesuffix("[exit code 0]").rstrip()

    def _inline_files(self, turn: Turn, component: CommandFile | Skill, text: str, read: list[int]) -> str:
        """Add the texts of the files that a text refers to by ``@file`` outside of code; ``read`` are their sizes."""
        parts = _CODE_SPAN.split(text)
        parts[::2] = [
            _FILE_REFERENCE.sub(lambda match: self._inline_file(turn, component, match, read), part)
            for part in parts[::2]
        ]
        return "".join(parts)

    def _inline_file(self, turn: Turn, component: CommandFile | Skill, match: "re.Match[str]", read: list[int]) -> str:
        """Return a reference followed by the text of its file, if the rules allow reading it."""
        reference = match[1].rstrip(_PUNCTUATION)
        name = os.path.expanduser(reference.replace("\\ ", " "))  # noqa: PTH111  # Path's raises
        path = Path(self._root, name).resolve()
        own = [Path(root) for root in [component.variables.get("CLAUDE_PLUGIN_ROOT")] if root]
        own += [component.folder] if isinstance(component, Skill) else []
        call = ToolCall(id=CallId("reference"), name="Read", arguments={"file_path": str(path)})
        rules = [f"Read(/{folder}/**)" for folder in map(os.path.realpath, own) if not _PATTERN.search(folder)]
        if not isinstance(_judge(turn, rules, call, _READ), Allow):
            return match[0]
        try:
            size = path.stat().st_size if path.is_file() else MAX_INLINED_BYTES + 1
            if size > MAX_INLINED_BYTES or sum(read) + size > MAX_INLINED_TOTAL:
                return match[0]
            read.append(size)
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return match[0]
        return f'@{reference}\n<file path="{path}">\n{text}\n</file>\n{match[1][len(reference) :]}'


class AllowedTools(Middleware):
    """Allows the calls that the command or skill in use lists as ``allowed-tools``, in the turn in which it is used.

    Reading a command or skill that allows nothing is allowed as well. It answers neither rules that ask or deny,
    protected paths nor what other middleware asks about.
    """

    inherited = ()

    def __init__(self, find_called: Callable[[ToolCall], CommandFile | Skill | None]) -> None:
        self._find_called = find_called

    async def before_tool(self, turn: Turn, call: ToolCall) -> ToolCall | Allow:
        rules, tool = self._rules_for(turn, call), turn.tools.get(call.name)
        allowed = rules and tool is not None and isinstance(_judge(turn, rules, call, tool.spec), Allow)
        return Allow(rule="allowed-tools") if allowed else call

    def _rules_for(self, turn: Turn, call: ToolCall) -> list[str]:
        rules, called = _rules_in_use(turn), self._find_called(call)
        return [*rules, call.name] if called is not None and not called.allowed_tools and not called.hooks else rules


def _is_allowed(judged: Verdict, verdict: Verdict | None) -> bool:
    """Return whether a call runs without a question: middleware answers the questions of rules, and may ask itself."""
    if isinstance(judged, Allow):
        return not isinstance(verdict, Ask)
    return isinstance(judged, Ask) and judged.layer != PROTECTED_LAYER and isinstance(verdict, Allow)


def _rules_in_use(turn: Turn) -> list[str]:
    """Return the rules that the commands and skills of this agent allow in this turn."""
    value: object = turn.get_state(ALLOWED_KEY)
    found = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    in_use = found.get("turn") == turn.id and found.get("path") == [*turn.path]
    return [str(rule) for rule in cast("list[object]", found.get("rules") or [])] if in_use else []


def _judge(turn: Turn, rules: Sequence[str], call: ToolCall, spec: ToolSpec) -> Verdict:
    """Return the verdict of the policy with further rules; a text that is not a rule does not count.

    In the mode ``plan``, which only reads, the further rules do not count either.
    """
    policy = turn.env.policy
    if hasattr(policy, "for_call"):
        policy = cast("SessionPolicy", policy).for_call(spec, turn.path, turn.get_state)
    if rules and hasattr(policy, "with_grants") and getattr(policy, "mode", "") != "plan":
        policy = cast("GrantingPolicy", policy).with_grants([Grant(rule="\n".join(rules))])
    return policy.judge(call, spec, turn.path)
