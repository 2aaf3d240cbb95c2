"""The profile of git: subcommands that only show something."""

from vaka.policy.bash.parse.preflight import name_set
from vaka.policy.bash.parse.syntax import Word, Words
from vaka.policy.bash.profile.options import NotReadOnly, ParsedOptions, read_profiles

_GLOBAL_OPTIONS = name_set("--no-pager --literal-pathspecs --no-optional-locks --no-replace-objects -P --no-lazy-fetch")


def _check_no_signatures(parsed: ParsedOptions) -> None:
    for value in parsed.values("--format", "--pretty"):
        if value.value is None or "%G" in value.value:
            raise NotReadOnly("%G in a format runs the program that checks signatures")


def _check_branch_listing(parsed: ParsedOptions) -> None:
    """Refuse ``git branch NAME``, which creates a branch unless an option lists."""
    lists = ("-l", "--list", "--contains", "--no-contains", "--merged", "--no-merged", "--points-at")
    if parsed.operands and not parsed.has(*lists):
        raise NotReadOnly("git branch with a name creates a branch")


_SUBCOMMANDS = read_profiles({
    "log diff show": {
        "lenient": True, "flags": "pcmuzsbwWaRtrqiEFPg0", "valued": "nSGUOLl", "attached": "MCB", "numbers": True,
        "long": "format pretty date oneline stat numstat shortstat dirstat summary patch no-patch raw name-only "
            "name-status patch-with-stat graph all decorate no-decorate first-parent merges no-merges reverse "
            "follow cached staged full-history simplify-merges topo-order date-order author-date-order cherry "
            "cherry-pick cherry-mark left-right left-only right-only abbrev abbrev-commit no-abbrev-commit color "
            "no-color word-diff color-words minimal patience histogram ignore-all-space ignore-space-change "
            "ignore-blank-lines ignore-space-at-eol ignore-cr-at-eol no-renames find-renames find-copies "
            "find-copies-harder function-context exit-code quiet text binary full-index check cc "
            "combined-all-paths no-ext-diff no-textconv no-prefix relative no-relative merge-base no-index source "
            "walk-reflogs stdin boundary parents children notes no-notes pickaxe-all pickaxe-regex fixed-strings "
            "perl-regexp extended-regexp basic-regexp regexp-ignore-case invert-grep all-match branches tags "
            "remotes glob compact-summary relative-date show-pulls simplify-by-decoration diff-merges "
            "no-diff-merges submodule no-color-moved color-moved",
        "long_valued": "since until after before author committer grep max-count skip diff-filter word-diff-regex "
            "inter-hunk-context src-prefix dst-prefix line-prefix ws-error-highlight exclude decorate-refs "
            "decorate-refs-exclude max-parents min-parents encoding unified diff-algorithm",
        "refused": "--output --ext-diff --textconv --show-signature", "files": "-O -L", "check": _check_no_signatures,
    },
    "status": {"lenient": True},
    "blame": {
        "lenient": True, "valued": "LSCM", "long_valued": "since contents ignore-rev ignore-revs-file date encoding",
        "files": "--contents --ignore-revs-file -S", "refused": "--output --ext-diff --textconv",
    },
    "rev-parse": {"lenient": True, "paths": False},
    "ls-files": {
        "lenient": True, "valued": "xX", "long_valued": "exclude exclude-from exclude-per-directory with-tree format",
        "files": "-X --exclude-from",
    },
    "branch": {
        "flags": "arvliq",
        "long": "all remotes list verbose show-current column no-column color no-color ignore-case abbrev "
            "no-abbrev quiet contains no-contains merged no-merged",
        "long_valued": "sort format points-at",
        "refused": "-d --delete -D -m --move -M -c --copy -C -f --force -u --set-upstream-to --set-upstream "
            "--unset-upstream -t --track --no-track --edit-description --create-reflog --recurse-submodules",
        "paths": False, "check": _check_branch_listing,
    },
})  # fmt: skip


def inspect_git(words: Words) -> list[Word]:
    """Return the words of a git command that may be paths. Raises ``NotReadOnly``."""
    at = 0
    while at < len(words) and words[at].value in _GLOBAL_OPTIONS:
        at += 1
    folder = ""
    if at + 1 < len(words) and words[at].value == "-C":
        folder = _require_subfolder(words[at + 1]).rstrip("/") + "/"
        at += 2
    subcommand = words[at].value if at < len(words) else None
    if subcommand == "remote":
        return _inspect_remote(words[at + 1 :])
    if subcommand == "--version" and at + 1 == len(words):
        return []
    program = _SUBCOMMANDS.get(subcommand or "")
    if program is None:
        raise NotReadOnly(f"git {words[at].source if at < len(words) else ''} is not a command that only shows")
    return _path_words_of(program.inspect(words[at + 1 :]), folder)


def _require_subfolder(word: Word) -> str:
    """Return a folder below this one; another repository may have settings that run programs."""
    value = word.value
    if value is None or value.startswith(("/", "~", "-")) or ".." in value.split("/"):
        raise NotReadOnly("git -C may lead to a repository whose settings run programs")
    return value


def _inspect_remote(words: Words) -> list[Word]:
    if any(word.value not in {"-v", "--verbose"} for word in words):
        raise NotReadOnly("git remote with more than -v changes something or uses the network")
    return []


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
