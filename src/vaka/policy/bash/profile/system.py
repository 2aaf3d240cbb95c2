"""Profiles of shell builtins and of programs that show the state of the system."""

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from vaka.policy.bash.parse.preflight import name_set
from vaka.policy.bash.parse.syntax import SimpleCommand, Word, Words
from vaka.policy.bash.parse.variables import is_safe_variable, is_unsafe_variable
from vaka.policy.bash.profile.options import NotReadOnly, ParsedOptions, read_harmless_profiles, read_profiles

HARMLESS_BUILTINS = frozenset({"break", "continue", "return", "exit", "shift", "[["})

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_SET_FLAGS = re.compile(r"[-+](?:[aefuxvnCE]|o)+")

_SET_OPTIONS = frozenset(
    {"pipefail", "errexit", "nounset", "xtrace", "noclobber", "noglob", "posix", "verbose", "errtrace"}
)


def inspect_set(words: Words) -> list[Word]:
    """Accept ``set -euo pipefail`` and the like; without arguments it prints every variable."""
    if not words:
        raise NotReadOnly("set without arguments prints every variable, including secrets")
    for word in words:
        if word.value is None or not (_SET_FLAGS.fullmatch(word.value) or word.value in _SET_OPTIONS):
            raise NotReadOnly(f"set {word.source} is not known to be harmless")
    return []


def inspect_read(words: Words) -> list[Word]:
    valued = False
    for word in words:
        value = word.value
        if valued and value is not None:
            valued = False
        elif value is None or (not value.startswith("-") and (not _NAME.fullmatch(value) or is_unsafe_variable(value))):
            raise NotReadOnly(f"read sets {word.source}")
        elif value.startswith("-"):
            if "a" in value or "u" in value:
                raise NotReadOnly(f"read {value} is not known to be harmless")
            valued = value[-1] in "dinNpt"
    return []


def inspect_wait(words: Words) -> list[Word]:
    """Accept ``wait``, ``wait 42``, ``wait $!``; with ``-p`` it sets a variable."""
    for word in words:
        last = bool(word.expansions) and all(hole.name == "!" for hole in word.expansions)
        if not last and (word.value is None or not re.fullmatch(r"-[nf]+|%?\w+|%[%+-]", word.value)):
            raise NotReadOnly(f"wait {word.source} may set a variable")
    return []


def inspect_declaration(simple: SimpleCommand) -> list[Word]:
    """Accept ``local x=1`` and ``export NODE_ENV=test``: variables that do not decide what runs."""
    name, exported = simple.name, simple.name == "export"
    assigned = {one.name for one in simple.assignments}
    for word in simple.words[1:]:
        value = word.value if word.value is not None else word.source
        if value.startswith(("-", "+")):
            if not re.fullmatch(r"-[aAlrux]+", value) or name == "unset":
                raise NotReadOnly(f"{name} {value} is not known to be harmless")
            exported = exported or "x" in value
        elif (found := _NAME.match(value)) is None or (found[0] != value and found[0] not in assigned):
            raise NotReadOnly(f"{name} {word.source} is not known to be harmless")
        elif is_unsafe_variable(found[0]) or (exported and not is_safe_variable(found[0])):
            raise NotReadOnly(f"{name} {found[0]} affects later commands")
    if len(simple.words) == 1:
        raise NotReadOnly(f"{name} without arguments prints variables, including secrets")
    return []


DECLARATION_BUILTINS = frozenset({"export", "declare", "typeset", "local", "readonly", "unset"})


def check_cd(words: Words, is_inside: Callable[[str], bool]) -> None:
    """Raise ``NotReadOnly`` unless ``cd`` stays inside the workspace."""
    operands = [word for word in words if word.value not in {"-P", "-L", "--"}]
    if len(operands) != 1:
        raise NotReadOnly("cd without one folder leads elsewhere")
    path = operands[0].path
    if path is None or path.startswith("-"):
        raise NotReadOnly(f"the target of cd {operands[0].source} is not known")
    if not is_inside(path):
        raise NotReadOnly(f"cd {operands[0].source} leads out of the workspace")


def is_below(path: str) -> bool:
    """Return whether a relative path never leads above its start."""
    if path.startswith(("/", "~")) or not path:
        return False
    depth = 0
    for part in path.split("/"):
        depth += -1 if part == ".." else 0 if part in {"", "."} else 1
        if depth < 0:
            return False
    return True


_PS_DASH_LETTERS = frozenset("AadefFjlMPyZcHLmnTVwCGgpqstUuoOkN")
"""Options with a dash; with any other, ``ps`` parses all words again as options without a dash."""

_PS_LOOKUP_OPTIONS = ("-u", "-U", "-g", "-G", "-t", "-p", "-q", "-s")

_PS_OWN_PARAMETERS = frozenset({"USER", "LOGNAME", "UID", "EUID", "$", "PPID", "!"})

_PS_VALUED = frozenset("okOpqtUN")

_PS_REASON = "ps may show the environment of processes, including secrets"


def _check_ps(parsed: ParsedOptions) -> None:
    formats = parsed.values("-o", "-O", "--format", "-k", "--sort")
    looked_up = [word.value or _ps_value_of(word) for word in parsed.values(*_PS_LOOKUP_OPTIONS)]
    letters = {name[1] for name, _ in parsed.options if not name.startswith("--")}
    again = not letters <= _PS_DASH_LETTERS or any(not re.fullmatch(r"[\d, ]+", value) for value in looked_up)
    if ("e" in letters and again) or any(re.fullmatch(r"[a-zA-Z]*e[a-zA-Z]*", value) for value in looked_up):
        raise NotReadOnly(_PS_REASON)
    if any("env" in (word.value or "env").lower() for word in formats):
        raise NotReadOnly(_PS_REASON)
    _check_bsd_options(parsed)


def _ps_value_of(word: Word) -> str:
    """Return ``?`` for a safe value such as ``$USER`` or ``$(pidof x)``, ``e`` for one that may be options."""
    safe = (one.name in _PS_OWN_PARAMETERS or (one.kind == "command" and one.guess is None) for one in word.expansions)
    return "?" if all(safe) else "e"


def _check_bsd_options(parsed: ParsedOptions) -> None:
    """Check options without a dash, such as ``ps aux`` and ``ps axo user,pid``."""
    valued = False
    for word in parsed.operands:
        value = word.value
        if value is None or "env" in value.lower():
            raise NotReadOnly(_PS_REASON)
        if valued or value[:1].isdigit():
            valued = False
            continue
        at = next((at for at, letter in enumerate(value) if letter in _PS_VALUED), len(value))
        valued = at == len(value) - 1
        if "e" in value[:at]:
            raise NotReadOnly(_PS_REASON)


def _check_date(parsed: ParsedOptions) -> None:
    for word in parsed.operands:
        if not word.prefix.startswith("+"):
            raise NotReadOnly("date with a time sets the clock")


def _check_man_pages(parsed: ParsedOptions) -> None:
    for word in parsed.operands:
        if word.value is None or "/" in word.value:
            raise NotReadOnly("man formats a file that may not be a manual page")


_HARMLESS_PROGRAMS: Mapping[str, Mapping[str, Any]] = {
    "ls": {"valued": "ITw"}, "stat": {"valued": "cft"},
    "du": {"valued": "BdtX", "files": "-X --exclude-from --files0-from"}, "df": {"valued": "Btx"},
    "pwd whoami which type": {"paths": False}, "realpath": {},
}  # fmt: skip

_CHECKED_PROGRAMS: Mapping[str, Mapping[str, Any]] = {
    "date": {
        "flags": "uRjn", "valued": "drfvz", "attached": "I",
        "long": "utc universal rfc-email iso-8601 debug help version",
        "long_valued": "date reference file rfc-3339 resolution", "refused": "-s --set",
        "files": "-f --file -r --reference", "paths": False, "check": _check_date,
    },
    "file": {
        "flags": "bchiIklLnNrsvzZ0dEp", "valued": "eFfP",
        "long": "brief mime mime-type mime-encoding apple extension keep-going dereference no-dereference "
            "no-buffer no-pad raw special-files uncompress uncompress-noreport print0 version help list "
            "checking-printout debug",
        "long_valued": "exclude exclude-quiet separator files-from parameter",
        "refused": "-C --compile -m --magic-file -p --preserve-date -S --no-sandbox", "files": "-f --files-from",
    },
    "tree": {
        "flags": "adflxpsugDhCnAFqNQSvtcrUXJix", "valued": "LPI",
        "long": "noreport si du prune inodes device filesfirst dirsfirst help version matchdirs ignore-case "
            "metafirst gitignore noreport hintro houtro charset sort filelimit timefmt",
        "long_valued": "gitfile infofile", "refused": "-o -R -H --output --fromfile --fromtabfile",
        "files": "--gitfile --infofile",
    },
    "man": {
        "flags": "afkwWiId7", "valued": "seS",
        "long": "all whatis apropos where path location where-cat ignore-case match-case names-only regex wildcard",
        "long_valued": "sections section extension",
        "refused": "-P --pager -H --html -C --config-file -l --local-file -M --manpath -L --locale -m --systems "
            "-p --preprocessor -t --troff -T --troff-device -X --gxditview -Z --ditroff -K --global-apropos -D "
            "--default -R --recode -E --encoding -r --prompt -c --catman",
        "paths": False, "check": _check_man_pages,
    },
    "ps": {
        "lenient": True, "valued": "opqstuCGgUNOk", "refused": "-E --environment", "paths": False, "check": _check_ps,
        "long_valued": "format sort user User group Group pid ppid quick-pid sid tty",
    },
}  # fmt: skip

SYSTEM_PROGRAMS = read_harmless_profiles(_HARMLESS_PROGRAMS) | read_profiles(_CHECKED_PROGRAMS)


def inspect_xxd(words: Words) -> list[Word]:
    """Accept one file: ``xxd`` writes to the second."""
    operands: list[Word] = []
    valued = False
    for word in words:
        value = word.value
        if operands:
            raise NotReadOnly("a word after the file would be written to")
        if valued and not word.may_split:
            valued = False
        elif value is not None and value in _XXD_VALUED:
            valued = True
        elif value is not None and value.startswith("-") and value != "-":
            _check_xxd_option(value)
        elif word.may_split or word.prefix.startswith("-"):
            raise NotReadOnly(f"{word.source} may become a file to write")
        else:
            operands.append(word)
    return operands


_XXD_VALUED = name_set("-c -g -l -n -o -s -R -cols -len -seek -name -groupsize -offset")

_XXD_FLAGS = name_set(
    "-a -b -C -d -e -E -i -p -ps -plain -r -u -v -h -autoskip -bits -include -revert -uppercase -postscript"
)


def _check_xxd_option(value: str) -> None:
    if value not in _XXD_FLAGS and not (value[:2] in _XXD_VALUED and value[2:].lstrip("+-").isalnum()):
        raise NotReadOnly(f"{value} is not known to only read")


_EVALUATING_OPERATORS = frozenset({"-v", "-R"})

_COMPARISONS = frozenset({"=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"})

_UNARY_OPERATOR = re.compile(r"-[b-hknp-uwxzGLNOS]")
"""Operators of ``test`` whose operand is always the next word."""


def inspect_test(words: Words) -> list[Word]:
    """Refuse ``-v`` and ``-R``: they evaluate subscripts, which can run commands."""
    for at, word in enumerate(words):
        if word.value in _EVALUATING_OPERATORS:
            raise NotReadOnly(f"{word.value} evaluates its operand, which can run commands")
        if word.value is None and _may_evaluate(word, words[at - 1 : at] if at else (), words[at + 1 : at + 2]):
            raise NotReadOnly(f"{word.source} may become -v, which evaluates its operand, and that can run commands")
    return []


def _may_evaluate(word: Word, before: Words, after: Words) -> bool:
    """Return whether a word may become ``-v`` or ``-R`` in the position of an operator."""
    if all(hole.numeric or hole.plain_value or hole.name == "!" for hole in word.expansions):
        return False
    shown = "".join(piece if isinstance(piece, str) else piece.name for piece in word.pieces)
    if word.may_split and all(hole.kind == "glob" for hole in word.expansions):
        return any(fnmatchcase(operator, shown) for operator in _EVALUATING_OPERATORS)
    if word.may_split:
        return True
    compared = any(other.value in _COMPARISONS for other in (*before, *after))
    looked_at = bool(before) and _UNARY_OPERATOR.fullmatch(before[0].value or "") is not None
    alone = not before and (not after or after[0].value == "]")
    return word.prefix in {"", "-"} and not (compared or looked_at or alone)


def inspect_exec(words: Words) -> list[Word]:
    """Accept ``exec 2>&1``: without a command it only redirects, and redirections are judged on their own."""
    if words:
        raise NotReadOnly("it runs another command")
    return []


def inspect_command(words: Words) -> list[Word]:
    """Accept ``command -v``, which prints the location of a command."""
    if not words or words[0].value not in {"-v", "-V"}:
        raise NotReadOnly("it runs another command")
    return []
