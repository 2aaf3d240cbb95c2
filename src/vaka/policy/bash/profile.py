"""The read-only profile: uses of programs that change nothing, run nothing and print no secrets."""

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from vaka.policy.bash.options import NotReadOnly, OptionCheck, ParsedOptions, read_profiles
from vaka.policy.bash.parse.syntax import SimpleCommand, Word, Words
from vaka.policy.bash.parse.variables import DECLARATION_BUILTINS, is_safe_variable, is_unsafe_variable
from vaka.policy.bash.programs import name_set, read_set
from vaka.policy.bash.script_checks import check_awk, check_jq, check_sed

_HARMLESS_BUILTINS = frozenset({"break", "continue", "return", "exit", "shift", "[["})


def find_read_files(simple: SimpleCommand, words: Words) -> list[Word] | None:
    """Return the words that name files which a command reads; ``None`` when the command is not in the profile.

    Raises ``NotReadOnly`` when this use of the program does more than read.
    """
    name = words[0].value if words else None
    if name is None or words[0].from_braces:
        return None
    if len(words) == 2 and words[1].value in _VERSION_OPTIONS.get(name, ("--version",)) and name in _VERSIONED_PROGRAMS:
        return []
    if (inspect := _INSPECTORS.get(name)) is not None:
        return inspect(words[1:])
    if name in DECLARATION_BUILTINS:
        return _inspect_declaration(simple)
    return [] if name in _HARMLESS_BUILTINS else None


_VERSIONED_PROGRAMS = read_set("versioned_programs")

_VERSION_OPTIONS = {
    "node": ("--version", "-v"),
    "java": ("--version", "-version"),
    **dict.fromkeys(("python", "python2", "python3"), ("--version", "-V")),
}


# ------------------------------------------------------------------------------------------- builtins


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_SET_FLAGS = re.compile(r"[-+](?:[aefuxvnCE]|o)+")

_SET_OPTIONS = frozenset(
    {"pipefail", "errexit", "nounset", "xtrace", "noclobber", "noglob", "posix", "verbose", "errtrace"}
)


def _inspect_set(words: Words) -> list[Word]:
    """Accept ``set -euo pipefail`` and the like; without arguments it prints every variable."""
    if not words:
        raise NotReadOnly("set without arguments prints every variable, including secrets")
    for word in words:
        if word.value is None or not (_SET_FLAGS.fullmatch(word.value) or word.value in _SET_OPTIONS):
            raise NotReadOnly(f"set {word.source} is not known to be harmless")
    return []


def _inspect_read(words: Words) -> list[Word]:
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


def _inspect_wait(words: Words) -> list[Word]:
    """Accept ``wait``, ``wait 42``, ``wait $!``; with ``-p`` it sets a variable."""
    for word in words:
        last = bool(word.expansions) and all(expansion.name == "!" for expansion in word.expansions)
        if not last and (word.value is None or not re.fullmatch(r"-[nf]+|%?\w+|%[%+-]", word.value)):
            raise NotReadOnly(f"wait {word.source} may set a variable")
    return []


def _inspect_declaration(simple: SimpleCommand) -> list[Word]:
    """Accept ``local x=1`` and ``export NODE_ENV=test``: variables that do not decide what runs."""
    name, exported = simple.name, simple.name == "export"
    assigned = {assignment.name for assignment in simple.assignments}
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
    if all((word.value or "").startswith(("-", "+")) for word in simple.words[1:]):
        raise NotReadOnly(f"{name} without a name prints variables, including secrets")
    return []


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


_EVALUATING_OPERATORS = frozenset({"-v", "-R"})

_COMPARISONS = frozenset({"=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"})

_UNARY_OPERATOR = re.compile(r"-[b-hknp-uwxzGLNOS]")
"""Operators of ``test`` whose operand is always the next word."""


def _inspect_test(words: Words) -> list[Word]:
    """Refuse ``-v`` and ``-R``: they evaluate subscripts, which can run commands."""
    for index, word in enumerate(words):
        if word.value in _EVALUATING_OPERATORS:
            raise NotReadOnly(f"{word.value} evaluates its operand, which can run commands")
        if word.value is None and _may_evaluate(word, words[max(index - 1, 0) : index], words[index + 1 : index + 2]):
            raise NotReadOnly(f"{word.source} may become -v, which evaluates its operand, and that can run commands")
    return []


def _may_evaluate(word: Word, before: Words, after: Words) -> bool:
    """Return whether a word may become ``-v`` or ``-R`` in the position of an operator."""
    if all(expansion.numeric or expansion.plain_value or expansion.name == "!" for expansion in word.expansions):
        return False
    if word.may_split and word.expansion_kinds == {"glob"}:
        pattern = word.render(lambda expansion: expansion.name)
        return any(fnmatchcase(operator, pattern) for operator in _EVALUATING_OPERATORS)
    if word.may_split:
        return True
    compared = any(other.value in _COMPARISONS for other in (*before, *after))
    looked_at = bool(before) and _UNARY_OPERATOR.fullmatch(before[0].value or "") is not None
    alone = not before and (not after or after[0].value == "]")
    return word.prefix in {"", "-"} and not (compared or looked_at or alone)


def _inspect_exec(words: Words) -> list[Word]:
    """Accept ``exec 2>&1``: without a command it only redirects, and redirections are judged on their own."""
    if words:
        raise NotReadOnly("it runs another command")
    return []


def _inspect_docker(words: Words) -> list[Word]:
    """Accept ``docker ps`` and ``docker images``, which list."""
    if not words or words[0].value not in {"ps", "images"}:
        raise NotReadOnly("it may change containers or show what they hold")
    return []


_LISTING = re.compile(r"-?(?=[vzjJ]*t)(?=[tvzjJ]*f)[tvzjJf]+")


def _inspect_archive(words: Words) -> list[Word]:
    """Accept ``tar tf x.tar`` and ``unzip -l x.zip``, which list an archive of this machine."""
    values = [word.value or "" for word in words]
    listing = len(values) == 2 and (values[0] == "-l" or _LISTING.fullmatch(values[0]) is not None)
    if not listing or ":" in values[1] or values[1].startswith("-") or not values[1]:
        raise NotReadOnly("it may do more than list an archive")
    return [words[1]]


def _inspect_command(words: Words) -> list[Word]:
    """Accept ``command -v``, which prints the location of a command."""
    if not words or words[0].value not in {"-v", "-V"}:
        raise NotReadOnly("it runs another command")
    return []


# ------------------------------------------------------------------------------------------- programs


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
    """Return ``?`` for a safe value such as ``$USER`` or ``$(pidof x)``, ``e`` for a value that may be options."""
    unknown = [expansion for expansion in word.expansions if expansion.name not in _PS_OWN_PARAMETERS]
    return "?" if all(expansion.kind == "command" and expansion.guess is None for expansion in unknown) else "e"


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
        index = next((index for index, letter in enumerate(value) if letter in _PS_VALUED), len(value))
        valued = index == len(value) - 1
        if "e" in value[:index]:
            raise NotReadOnly(_PS_REASON)


def _check_date(parsed: ParsedOptions) -> None:
    for word in parsed.operands:
        if not word.prefix.startswith("+"):
            raise NotReadOnly("date with a time sets the clock")


def _check_man_pages(parsed: ParsedOptions) -> None:
    for word in parsed.operands:
        if word.value is None or "/" in word.value:
            raise NotReadOnly("man formats a file that may not be a manual page")


_XXD_FLAGS, _XXD_VALUED = read_set("xxd_flags"), read_set("xxd_valued")


def _inspect_xxd(words: Words) -> list[Word]:
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
            if value not in _XXD_FLAGS and not (value[:2] in _XXD_VALUED and value[2:].lstrip("+-").isalnum()):
                raise NotReadOnly(f"{value} is not known to only read")
        elif word.may_split or word.prefix.startswith("-"):
            raise NotReadOnly(f"{word.source} may become a file to write")
        else:
            operands.append(word)
    return operands


_FIND_FLAGS = read_set("find_flags")
_FIND_VALUED = read_set("find_valued")
_FIND_ACTIONS = read_set("find_actions")


def _inspect_find(words: Words) -> list[Word]:
    """Return the start folders of a ``find`` that only prints. Raises ``NotReadOnly``."""
    index, starts = 0, list[Word]()
    while index < len(words) and (words[index].value in {"-H", "-L", "-P"} or words[index].prefix[:2] in {"-O", "-D"}):
        index += 2 if words[index].value == "-D" else 1
    while index < len(words):
        word = words[index]
        index += 1
        value = word.value
        if value is None:
            if not word.prefix or word.prefix.startswith("-"):
                raise NotReadOnly(f"{word.source} may become an action of find")
            starts.append(word)
        elif value in _FIND_ACTIONS:
            raise NotReadOnly(f"find {value} does more than find")
        elif value in _FIND_VALUED or value.startswith("-newer"):
            index = _skip_find_argument(words, index)
        elif value not in _FIND_FLAGS:
            if value.startswith("-"):
                raise NotReadOnly(f"find {value} is not known to only find")
            starts.append(word)
    return starts


def _skip_find_argument(words: Words, index: int) -> int:
    if index < len(words) and words[index].may_split and not _matches_no_action(words[index]):
        raise NotReadOnly(f"{words[index].source} may become several words, and one of them an action of find")
    return index + 1


def _matches_no_action(word: Word) -> bool:
    """Return whether a pattern matches no action, as ``*.py``."""
    matched = (action for action in _FIND_ACTIONS if action.startswith(word.prefix) and action.endswith(word.suffix))
    return word.expansion_kinds <= {"glob"} and not any(matched)


# ------------------------------------------------------------------------------------------- git


_GIT_GLOBAL_OPTIONS = name_set(
    "--no-pager --literal-pathspecs --no-optional-locks --no-replace-objects -P --no-lazy-fetch"
)


def _check_no_signatures(parsed: ParsedOptions) -> None:
    for value in parsed.values("--format", "--pretty", "--sort"):
        if value.value is None or _SIGNATURE.search(value.value):
            raise NotReadOnly("%G in a format runs the program that checks signatures")


_SIGNATURE = re.compile(r"%[-+ ]?G|signature")


def _check_listing(parsed: ParsedOptions) -> None:
    """Refuse ``git branch NAME`` and ``git tag NAME``, which create one unless an option lists."""
    lists = ("-l", "-n", "--list", "--contains", "--no-contains", "--merged", "--no-merged", "--points-at")
    _check_no_signatures(parsed)
    if parsed.operands and not parsed.has(*lists):
        raise NotReadOnly("git branch or git tag with a name creates one")


def _inspect_git(words: Words) -> list[Word]:
    """Return the words of a git command that may be paths. Raises ``NotReadOnly``."""
    index = 0
    while index < len(words) and words[index].value in _GIT_GLOBAL_OPTIONS:
        index += 1
    folder = ""
    if index + 1 < len(words) and words[index].value == "-C":
        folder = _require_subfolder(words[index + 1]).rstrip("/") + "/"
        index += 2
    subcommand = words[index].value if index < len(words) else None
    if subcommand == "--version" and index + 1 == len(words):
        return []
    if subcommand is not None and subcommand in _SHOWING_ACTIONS:
        return _inspect_git_action(subcommand, words[index + 1 :], folder)
    program = _GIT_PROFILES.get(subcommand or "")
    if program is None:
        raise NotReadOnly(f"git {words[index].source if index < len(words) else ''} is not a command that only shows")
    return _path_words_of(program.inspect(words[index + 1 :]), folder)


_SHOWING_ACTIONS: Mapping[str, re.Pattern[str]] = {
    "remote": re.compile(r"(?:(?:-v|--verbose)\n)?|get-url\n\w[\w.-]*\n"),
    "worktree": re.compile(r"list\n(?:(?:-v|--porcelain|-z)\n)*"),
    "config": re.compile(
        r"(?:--get\n)?(?:user\.(?:name|email)|init\.defaultbranch|branch\.[\w./-]+\.(?:remote|merge))\n"
    ),
    "stash": re.compile(r"(?:list|show)\n.*", re.DOTALL),
    "reflog": re.compile(r"(?!(?:.*\n)?(?:expire|delete|exists|list|drop|write)\n).*", re.DOTALL),
}
"""The arguments, one on each line, with which subcommands of git only show something."""


def _inspect_git_action(subcommand: str, words: Words, folder: str) -> list[Word]:
    text = "".join(f"{word.placeholder_text}\n" for word in words)
    if not _SHOWING_ACTIONS[subcommand].fullmatch(text):
        raise NotReadOnly(f"git {subcommand} with these arguments is not known to only show something")
    if subcommand not in {"stash", "reflog"}:
        return []
    shown = words[1:] if text.startswith(("list\n", "show\n")) else words
    return _path_words_of(_GIT_PROFILES["log"].inspect(shown), folder)


def _require_subfolder(word: Word) -> str:
    """Return a folder below this one; another repository may have settings that run programs."""
    value = word.value
    if value is None or value.startswith(("/", "~", "-")) or ".." in value.split("/"):
        raise NotReadOnly("git -C may lead to a repository whose settings run programs")
    return value


def _path_words_of(words: list[Word], folder: str) -> list[Word]:
    """Return the paths among some words: ``HEAD:a/b`` names a/b, and after ``-C x`` all are below x."""
    paths: list[Word] = []
    for word in words:
        value = word.value
        if value is not None and ":" in value and not value.startswith(":"):
            value = value.partition(":")[2]
        if value is None:
            paths.append(word)
        elif value:
            paths.append(Word(value if value.startswith("/") else folder + value, word.source))
    return paths


_FORMATTED = ("log", "diff", "show", "shortlog", "rev-list", "whatchanged", "for-each-ref")

_GIT_PROFILES = read_profiles(
    "git", {**dict.fromkeys(_FORMATTED, _check_no_signatures), "branch": _check_listing, "tag": _check_listing}
)

_CHECKS: Mapping[str, OptionCheck] = {
    "sed": check_sed,
    "jq": check_jq,
    "date": _check_date,
    "man": _check_man_pages,
    "ps": _check_ps,
    **dict.fromkeys(("awk", "gawk", "mawk"), check_awk),
}

_INSPECTORS: Mapping[str, Callable[[Words], list[Word]]] = {
    name: program.inspect for name, program in (read_profiles("harmless") | read_profiles("checked", _CHECKS)).items()
} | {
    "xxd": _inspect_xxd,
    "test": _inspect_test,
    "[": _inspect_test,
    "set": _inspect_set,
    "command": _inspect_command,
    "exec": _inspect_exec,
    "find": _inspect_find,
    "git": _inspect_git,
    "read": _inspect_read,
    "wait": _inspect_wait,
    "docker": _inspect_docker,
    "podman": _inspect_docker,
    "tar": _inspect_archive,
    "unzip": _inspect_archive,
}
