"""Programs that look for files and for lines in them."""

from collections.abc import Mapping

from vaka.policy.bash.profile.options import Program, Refused, any_use
from vaka.policy.bash.text import names
from vaka.policy.bash.words import Word, Words

_GREP = any_use(valued="ABCDdefm", texts=1, scripts="-e -f --regexp --file", files="-f --file --exclude-from")

PROGRAMS: Mapping[str, Program] = {
    "grep": _GREP, "egrep": _GREP, "fgrep": _GREP,
    "rg": Program(
        lenient=True, numbers=True, flags="aFHhiIlLnNopPqsSuUvVwxbc0.", valued="ABCEMTdefgjmrt",
        long=names(
            "files files-with-matches files-without-match count count-matches ignore-case smart-case"
            " case-sensitive fixed-strings word-regexp line-regexp invert-match line-number no-line-number hidden"
            " no-ignore no-ignore-vcs follow pcre2 multiline multiline-dotall only-matching json stats vimgrep"
            " heading no-heading with-filename no-filename text quiet null trim unrestricted no-messages passthru"
            " pretty column type-list version help"
        ),
        long_valued=names(
            "regexp file after-context before-context context color colors column-number encoding engine glob"
            " iglob ignore-file max-columns max-count max-depth max-filesize path-separator replace sort sortr"
            " threads type type-add type-clear type-not dfa-size-limit regex-size-limit context-separator"
            " field-context-separator field-match-separator hyperlink-format generate stop-on-nonmatch"
        ),
        refused=names("--pre --hostname-bin --search-zip -z"),
        texts=1,
        scripts=names("-e -f --regexp --file --files --type-list"),
        files=names("-f --file --ignore-file"),
    ),
    "fd": Program(
        lenient=True, flags="HIuUsigaplLFqh1p0V", valued="EtedSjcCow",
        long=names(
            "hidden no-ignore no-ignore-vcs unrestricted case-sensitive ignore-case glob regex fixed-strings"
            " absolute-path full-path follow print0 quiet one-file-system strip-cwd-prefix version help prune"
            " show-errors"
        ),
        long_valued=names(
            "exclude type extension max-depth min-depth exact-depth size changed-within changed-before newer"
            " older owner threads color search-path base-directory path-separator max-results ignore-file and"
            " format batch-size"
        ),
        refused=names("-x --exec -X --exec-batch --list-details -l --gen-completions"),
        files=names("--ignore-file --search-path --base-directory -C"),
        texts=1,
    ),
}  # fmt: skip

_TESTS = {
    0: names(
        "-empty -executable -false -true -nogroup -nouser -readable -writable -daystart -depth -d -follow"
        " -ignore_readdir_race -noignore_readdir_race -mount -noleaf -nowarn -warn -xdev -print -print0 -prune"
        " -quit -ls -not -a -and -o -or ! ( ) , -help --help -version --version -X -x -E -s"
    ),
    1: names(
        "-amin -anewer -atime -cmin -cnewer -context -ctime -fstype -gid -group -ilname -iname -inum -ipath"
        " -iregex -iwholename -links -lname -mmin -mtime -name -newer -path -perm -regex -samefile -size -type"
        " -uid -used -user -wholename -xtype -maxdepth -mindepth -regextype -printf -flags -Bmin -Btime"
        " -sparse"
    ),
}
_ACTS = names("-delete -exec -execdir -ok -okdir -fprint -fprint0 -fprintf -fls -files0-from -rm")


def read_find(words: Words) -> list[Word]:
    """``find``: no action but to print."""
    at, starts = 0, list[Word]()
    while at < len(words) and (words[at].value in {"-H", "-L", "-P"} or words[at].prefix[:2] in {"-O", "-D"}):
        at += 2 if words[at].value == "-D" else 1
    while at < len(words):
        word = words[at]
        at += 1
        value = word.value
        if value is None:
            _start(word)
            starts.append(word)
        elif value in _ACTS:
            raise Refused(f"find {value} does more than find")
        elif value in _TESTS[1] or value.startswith("-newer"):
            at = _argument(words, at)
        elif value not in _TESTS[0]:
            if value.startswith("-"):
                raise Refused(f"find {value} is not known to only find")
            starts.append(word)
    return starts


def _start(word: Word) -> None:
    """A folder that is not known may turn out to be an action."""
    if not word.prefix or word.prefix.startswith("-"):
        raise Refused(f"{word.source} may turn out to be an action of find")


def _argument(words: Words, at: int) -> int:
    if at < len(words) and words[at].splits and not _harmless(words[at]):
        raise Refused(f"{words[at].source} may become several words, and one of them an action of find")
    return at + 1


def _harmless(word: Word) -> bool:
    """A pattern that no action's name fits, as ``*.py``."""
    if any(hole.kind != "glob" for hole in word.holes):
        return False
    return all(not (act.startswith(word.prefix) and act.endswith(word.suffix)) for act in _ACTS)
