"""Programs that read, filter and search text and files."""

from collections.abc import Mapping

from vaka.policy.bash.parse.preflight import name_set
from vaka.policy.bash.parse.syntax import Word, Words
from vaka.policy.bash.profile.options import NotReadOnly, ProgramProfile, harmless_program
from vaka.policy.bash.profile.sed_awk_jq import check_awk, check_jq, check_sed

_AWK_PROGRAM = ProgramProfile(
    flags="bcChknMNOPrsStV",
    valued="Fve",
    stop_at_operand=True,
    long=name_set(
        "posix traditional re-interval sandbox characters-as-bytes non-decimal-data use-lc-numeric version help"
        " bignum csv optimize no-optimize"
    ),
    long_valued=name_set("field-separator assign source"),
    refused=name_set(
        "-f --file -i --include -l --load -E --exec -o --pretty-print -p --profile -d --dump-variables -D"
        " --debug -W -L --lint --gen-pot -g -I --trace --random"
    ),
    leading_texts=1,
    scripts=name_set("-e --source"),
    check=check_awk,
)

TEXT_PROGRAMS: Mapping[str, ProgramProfile] = {
    "cat": harmless_program(),
    "head": harmless_program(valued="nc"),
    "tail": harmless_program(valued="ncs"),
    "wc": harmless_program(files="--files0-from"),
    "cut": harmless_program(valued="bcdf"),
    "tr": harmless_program(paths=False),
    "comm": harmless_program(),
    "column": harmless_program(valued="cosNlRTWEHOrp"),
    "nl": harmless_program(valued="bdfhilnsvw"),
    "tac": harmless_program(valued="s"),
    "rev": harmless_program(),
    "seq": harmless_program(paths=False, valued="fs"),
    "echo": harmless_program(paths=False),
    "printf": ProgramProfile(refused=name_set("-v"), stop_at_operand=True, lenient=True, paths=False),
    "basename": harmless_program(paths=False, valued="s"),
    "dirname": harmless_program(paths=False),
    "true": harmless_program(paths=False),
    "false": harmless_program(paths=False),
    ":": harmless_program(paths=False),
    "diff": harmless_program(valued="CDFILSTUWXx", files="-X --exclude-from --from-file --to-file"),
    "sort": ProgramProfile(
        flags="bdfghiMnRrVcCmsuz",
        valued="kSt",
        long=name_set(
            "ignore-leading-blanks dictionary-order ignore-case general-numeric-sort ignore-nonprinting"
            " month-sort human-numeric-sort numeric-sort random-sort reverse version-sort check merge stable"
            " unique zero-terminated debug help version"
        ),
        long_valued=name_set("sort key buffer-size field-separator parallel batch-size files0-from random-source"),
        refused=name_set("-o --output --compress-program -T --temporary-directory"),
        files=name_set("--files0-from --random-source"),
    ),
    "uniq": ProgramProfile(
        flags="cdDiuz",
        valued="fsw",
        numbers=True,
        long=name_set("count repeated all-repeated group ignore-case unique zero-terminated help version"),
        long_valued=name_set("skip-fields skip-chars check-chars"),
        max_operands=1,
    ),
    "base64": ProgramProfile(
        flags="dDi",
        valued="wb",
        long=name_set("decode ignore-garbage help version"),
        long_valued=name_set("wrap break"),
        refused=name_set("-o --output"),
    ),
    "sed": ProgramProfile(
        flags="nErsuzb",
        valued="el",
        long=name_set(
            "quiet silent debug regexp-extended separate unbuffered null-data zero-terminated posix sandbox"
            " binary follow-symlinks help version"
        ),
        long_valued=name_set("expression line-length"),
        refused=name_set("-i --in-place -I -f --file"),
        leading_texts=1,
        scripts=name_set("-e --expression"),
        check=check_sed,
    ),
    "awk": _AWK_PROGRAM,
    "gawk": _AWK_PROGRAM,
    "mawk": _AWK_PROGRAM,
    "jq": ProgramProfile(
        flags="crRsSnajeChMV",
        long=name_set(
            "compact-output raw-output raw-output0 join-output ascii-output sort-keys color-output"
            " monochrome-output tab raw-input slurp null-input exit-status stream stream-errors seq unbuffered"
            " help version args jsonargs"
        ),
        arity={"--arg": 2, "--argjson": 2, "--rawfile": 2, "--slurpfile": 2},
        files=name_set("--rawfile --slurpfile"),
        long_valued=name_set("indent"),
        refused=name_set("-f --from-file -L --library-path --run-tests --build-configuration"),
        leading_texts=1,
        check=check_jq,
    ),
}

_GREP_PROGRAM = harmless_program(
    valued="ABCDdefm", leading_texts=1, scripts="-e -f --regexp --file", files="-f --file --exclude-from"
)

SEARCH_PROGRAMS: Mapping[str, ProgramProfile] = {
    "grep": _GREP_PROGRAM, "egrep": _GREP_PROGRAM, "fgrep": _GREP_PROGRAM,
    "rg": ProgramProfile(
        lenient=True, numbers=True, flags="aFHhiIlLnNopPqsSuUvVwxbc0.", valued="ABCEMTdefgjmrt",
        long=name_set(
            "files files-with-matches files-without-match count count-matches ignore-case smart-case"
            " case-sensitive fixed-strings word-regexp line-regexp invert-match line-number no-line-number hidden"
            " no-ignore no-ignore-vcs follow pcre2 multiline multiline-dotall only-matching json stats vimgrep"
            " heading no-heading with-filename no-filename text quiet null trim unrestricted no-messages passthru"
            " pretty column type-list version help"
        ),
        long_valued=name_set(
            "regexp file after-context before-context context color colors column-number encoding engine glob"
            " iglob ignore-file max-columns max-count max-depth max-filesize path-separator replace sort sortr"
            " threads type type-add type-clear type-not dfa-size-limit regex-size-limit context-separator"
            " field-context-separator field-match-separator hyperlink-format generate stop-on-nonmatch"
        ),
        refused=name_set("--pre --hostname-bin --search-zip -z"),
        leading_texts=1,
        scripts=name_set("-e -f --regexp --file --files --type-list"),
        files=name_set("-f --file --ignore-file"),
    ),
    "fd": ProgramProfile(
        lenient=True, flags="HIuUsigaplLFqh1p0V", valued="EtedSjcCow",
        long=name_set(
            "hidden no-ignore no-ignore-vcs unrestricted case-sensitive ignore-case glob regex fixed-strings"
            " absolute-path full-path follow print0 quiet one-file-system strip-cwd-prefix version help prune"
            " show-errors"
        ),
        long_valued=name_set(
            "exclude type extension max-depth min-depth exact-depth size changed-within changed-before newer"
            " older owner threads color search-path base-directory path-separator max-results ignore-file and"
            " format batch-size"
        ),
        refused=name_set("-x --exec -X --exec-batch --list-details -l --gen-completions"),
        files=name_set("--ignore-file --search-path --base-directory -C"),
        leading_texts=1,
    ),
}  # fmt: skip

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
    """``find``: no action but to print."""
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
    """A folder that is not known may turn out to be an action."""
    if not word.prefix or word.prefix.startswith("-"):
        raise NotReadOnly(f"{word.source} may turn out to be an action of find")


def _skip_find_argument(words: Words, at: int) -> int:
    if at < len(words) and words[at].may_split and not _matches_no_action(words[at]):
        raise NotReadOnly(f"{words[at].source} may become several words, and one of them an action of find")
    return at + 1


def _matches_no_action(word: Word) -> bool:
    """A pattern that no action's name fits, as ``*.py``."""
    if any(hole.kind != "glob" for hole in word.expansions):
        return False
    return all(not (act.startswith(word.prefix) and act.endswith(word.suffix)) for act in _FIND_ACTIONS)
