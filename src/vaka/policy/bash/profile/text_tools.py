"""Programs that read, filter and search text and files."""

from collections.abc import Mapping
from typing import Any

from vaka.policy.bash.parse.preflight import name_set
from vaka.policy.bash.parse.syntax import Word, Words
from vaka.policy.bash.profile.options import NotReadOnly, read_harmless_profiles, read_profiles
from vaka.policy.bash.profile.sed_awk_jq import check_awk, check_jq, check_sed

_HARMLESS_PROGRAMS: Mapping[str, Mapping[str, Any]] = {
    "cat comm rev": {}, "head": {"valued": "nc"}, "tail": {"valued": "ncs"}, "wc": {"files": "--files0-from"},
    "cut": {"valued": "bcdf"}, "tr echo dirname true false :": {"paths": False},
    "column": {"valued": "cosNlRTWEHOrp"}, "nl": {"valued": "bdfhilnsvw"}, "tac": {"valued": "s"},
    "seq": {"paths": False, "valued": "fs"}, "basename": {"paths": False, "valued": "s"},
    "diff": {"valued": "CDFILSTUWXx", "files": "-X --exclude-from --from-file --to-file"},
    "grep egrep fgrep": {
        "valued": "ABCDdefm", "leading_texts": 1, "scripts": "-e -f --regexp --file",
        "files": "-f --file --exclude-from",
    },
}  # fmt: skip

_CHECKED_PROGRAMS: Mapping[str, Mapping[str, Any]] = {
    "printf": {"refused": "-v", "stop_at_operand": True, "lenient": True, "paths": False},
    "sort": {
        "flags": "bdfghiMnRrVcCmsuz", "valued": "kSt",
        "long": "ignore-leading-blanks dictionary-order ignore-case general-numeric-sort ignore-nonprinting "
            "month-sort human-numeric-sort numeric-sort random-sort reverse version-sort check merge stable "
            "unique zero-terminated debug help version",
        "long_valued": "sort key buffer-size field-separator parallel batch-size files0-from random-source",
        "refused": "-o --output --compress-program -T --temporary-directory", "files": "--files0-from --random-source",
    },
    "uniq": {
        "flags": "cdDiuz", "valued": "fsw", "numbers": True,
        "long": "count repeated all-repeated group ignore-case unique zero-terminated help version",
        "long_valued": "skip-fields skip-chars check-chars", "max_operands": 1,
    },
    "base64": {
        "flags": "dDi", "valued": "wb", "long": "decode ignore-garbage help version", "long_valued": "wrap break",
        "refused": "-o --output",
    },
    "sed": {
        "flags": "nErsuzb", "valued": "el",
        "long": "quiet silent debug regexp-extended separate unbuffered null-data zero-terminated posix sandbox "
            "binary follow-symlinks help version",
        "long_valued": "expression line-length", "refused": "-i --in-place -I -f --file", "leading_texts": 1,
        "scripts": "-e --expression", "check": check_sed,
    },
    "awk gawk mawk": {
        "flags": "bcChknMNOPrsStV", "valued": "Fve", "stop_at_operand": True,
        "long": "posix traditional re-interval sandbox characters-as-bytes non-decimal-data use-lc-numeric "
            "version help bignum csv optimize no-optimize",
        "long_valued": "field-separator assign source",
        "refused": "-f --file -i --include -l --load -E --exec -o --pretty-print -p --profile -d --dump-variables "
            "-D --debug -W -L --lint --gen-pot -g -I --trace --random",
        "leading_texts": 1, "scripts": "-e --source", "check": check_awk,
    },
    "jq": {
        "flags": "crRsSnajeChMV",
        "long": "compact-output raw-output raw-output0 join-output ascii-output sort-keys color-output "
            "monochrome-output tab raw-input slurp null-input exit-status stream stream-errors seq unbuffered "
            "help version args jsonargs",
        "arity": {"--arg": 2, "--argjson": 2, "--rawfile": 2, "--slurpfile": 2}, "files": "--rawfile --slurpfile",
        "long_valued": "indent", "refused": "-f --from-file -L --library-path --run-tests --build-configuration",
        "leading_texts": 1, "check": check_jq,
    },
    "rg": {
        "lenient": True, "numbers": True, "flags": "aFHhiIlLnNopPqsSuUvVwxbc0.", "valued": "ABCEMTdefgjmrt",
        "long": "files files-with-matches files-without-match count count-matches ignore-case smart-case "
            "case-sensitive fixed-strings word-regexp line-regexp invert-match line-number no-line-number hidden "
            "no-ignore no-ignore-vcs follow pcre2 multiline multiline-dotall only-matching json stats vimgrep "
            "heading no-heading with-filename no-filename text quiet null trim unrestricted no-messages passthru "
            "pretty column type-list version help",
        "long_valued": "regexp file after-context before-context context color colors column-number encoding "
            "engine glob iglob ignore-file max-columns max-count max-depth max-filesize path-separator replace "
            "sort sortr threads type type-add type-clear type-not dfa-size-limit regex-size-limit "
            "context-separator field-context-separator field-match-separator hyperlink-format generate "
            "stop-on-nonmatch",
        "refused": "--pre --hostname-bin --search-zip -z", "leading_texts": 1,
        "scripts": "-e -f --regexp --file --files --type-list", "files": "-f --file --ignore-file",
    },
    "fd": {
        "lenient": True, "flags": "HIuUsigaplLFqh1p0V", "valued": "EtedSjcCow",
        "long": "hidden no-ignore no-ignore-vcs unrestricted case-sensitive ignore-case glob regex fixed-strings "
            "absolute-path full-path follow print0 quiet one-file-system strip-cwd-prefix version help prune "
            "show-errors",
        "long_valued": "exclude type extension max-depth min-depth exact-depth size changed-within changed-before "
            "newer older owner threads color search-path base-directory path-separator max-results ignore-file "
            "and format batch-size",
        "refused": "-x --exec -X --exec-batch --list-details -l --gen-completions",
        "files": "--ignore-file --search-path --base-directory -C", "leading_texts": 1,
    },
}  # fmt: skip

TEXT_PROGRAMS = read_harmless_profiles(_HARMLESS_PROGRAMS) | read_profiles(_CHECKED_PROGRAMS)

_FIND_TESTS = {
    0: name_set(
        "-empty -executable -false -true -nogroup -nouser -readable -writable -daystart -depth -d -follow"
        " -ignore_readdir_race -noignore_readdir_race -mount -noleaf -nowarn -warn -xdev -print -print0 -prune"
        " -quit -ls -not -a -and -o -or ! ( ) , -help --help -version --version -X -x -E -s"
    ),
    1: name_set(
        "-amin -anewer -atime -cmin -cnewer -context -ctime -fstype -gid -group -ilname -iname -inum -ipath"
        " -iregex -iwholename -links -lname -mmin -mtime -name -newer -path -perm -regex -samefile -size -type"
        " -uid -used -user -wholename -xtype -maxdepth -mindepth -regextype -printf -flags -Bmin -Btime"
        " -sparse"
    ),
}

_FIND_ACTIONS = name_set("-delete -exec -execdir -ok -okdir -fprint -fprint0 -fprintf -fls -files0-from -rm")


def inspect_find(words: Words) -> list[Word]:
    """Return the start folders of a ``find`` that only prints. Raises ``NotReadOnly``."""
    at, starts = 0, list[Word]()
    while at < len(words) and (words[at].value in {"-H", "-L", "-P"} or words[at].prefix[:2] in {"-O", "-D"}):
        at += 2 if words[at].value == "-D" else 1
    while at < len(words):
        word = words[at]
        at += 1
        value = word.value
        if value is None:
            _check_find_start(word)
            starts.append(word)
        elif value in _FIND_ACTIONS:
            raise NotReadOnly(f"find {value} does more than find")
        elif value in _FIND_TESTS[1] or value.startswith("-newer"):
            at = _skip_find_argument(words, at)
        elif value not in _FIND_TESTS[0]:
            if value.startswith("-"):
                raise NotReadOnly(f"find {value} is not known to only find")
            starts.append(word)
    return starts


def _check_find_start(word: Word) -> None:
    """Refuse an unknown folder that may become an action."""
    if not word.prefix or word.prefix.startswith("-"):
        raise NotReadOnly(f"{word.source} may become an action of find")


def _skip_find_argument(words: Words, at: int) -> int:
    if at < len(words) and words[at].may_split and not _matches_no_action(words[at]):
        raise NotReadOnly(f"{words[at].source} may become several words, and one of them an action of find")
    return at + 1


def _matches_no_action(word: Word) -> bool:
    """Return whether a pattern matches no action, as ``*.py``."""
    if any(hole.kind != "glob" for hole in word.expansions):
        return False
    return all(not (act.startswith(word.prefix) and act.endswith(word.suffix)) for act in _FIND_ACTIONS)
