"""Programs that read text and print text."""

from collections.abc import Mapping

from vaka.policy.bash.profile.awk import check_awk
from vaka.policy.bash.profile.jq import check_jq
from vaka.policy.bash.profile.options import Program, any_use
from vaka.policy.bash.profile.sed import check_sed
from vaka.policy.bash.text import names

_AWK = Program(
    flags="bcChknMNOPrsStV",
    valued="Fve",
    ordered=True,
    long=names(
        "posix traditional re-interval sandbox characters-as-bytes non-decimal-data use-lc-numeric version help"
        " bignum csv optimize no-optimize"
    ),
    long_valued=names("field-separator assign source"),
    refused=names(
        "-f --file -i --include -l --load -E --exec -o --pretty-print -p --profile -d --dump-variables -D"
        " --debug -W -L --lint --gen-pot -g -I --trace --random"
    ),
    texts=1,
    scripts=names("-e --source"),
    check=check_awk,
)

PROGRAMS: Mapping[str, Program] = {
    "cat": any_use(),
    "head": any_use(valued="nc"),
    "tail": any_use(valued="ncs"),
    "wc": any_use(files="--files0-from"),
    "cut": any_use(valued="bcdf"),
    "tr": any_use(paths=False),
    "comm": any_use(),
    "column": any_use(valued="cosNlRTWEHOrp"),
    "nl": any_use(valued="bdfhilnsvw"),
    "tac": any_use(valued="s"),
    "rev": any_use(),
    "seq": any_use(paths=False, valued="fs"),
    "echo": any_use(paths=False),
    "printf": Program(refused=names("-v"), ordered=True, lenient=True, paths=False),
    "basename": any_use(paths=False, valued="s"),
    "dirname": any_use(paths=False),
    "true": any_use(paths=False),
    "false": any_use(paths=False),
    ":": any_use(paths=False),
    "diff": any_use(valued="CDFILSTUWXx", files="-X --exclude-from --from-file --to-file"),
    "sort": Program(
        flags="bdfghiMnRrVcCmsuz",
        valued="kSt",
        long=names(
            "ignore-leading-blanks dictionary-order ignore-case general-numeric-sort ignore-nonprinting"
            " month-sort human-numeric-sort numeric-sort random-sort reverse version-sort check merge stable"
            " unique zero-terminated debug help version"
        ),
        long_valued=names(
            "sort key buffer-size field-separator parallel batch-size files0-from random-source"
        ),
        refused=names("-o --output --compress-program -T --temporary-directory"),
        files=names("--files0-from --random-source"),
    ),
    "uniq": Program(
        flags="cdDiuz",
        valued="fsw",
        numbers=True,
        long=names(
            "count repeated all-repeated group ignore-case unique zero-terminated help version"
        ),
        long_valued=names("skip-fields skip-chars check-chars"),
        most=1,
    ),
    "base64": Program(
        flags="dDi", valued="wb", long=names("decode ignore-garbage help version"), long_valued=names("wrap break"),
        refused=names("-o --output"),
    ),
    "sed": Program(
        flags="nErsuzb",
        valued="el",
        long=names(
            "quiet silent debug regexp-extended separate unbuffered null-data zero-terminated posix sandbox"
            " binary follow-symlinks help version"
        ),
        long_valued=names("expression line-length"),
        refused=names("-i --in-place -I -f --file"),
        texts=1,
        scripts=names("-e --expression"),
        check=check_sed,
    ),
    "awk": _AWK, "gawk": _AWK, "mawk": _AWK,
    "jq": Program(
        flags="crRsSnajeChMV",
        long=names(
            "compact-output raw-output raw-output0 join-output ascii-output sort-keys color-output"
            " monochrome-output tab raw-input slurp null-input exit-status stream stream-errors seq unbuffered"
            " help version args jsonargs"
        ),
        arity={"--arg": 2, "--argjson": 2, "--rawfile": 2, "--slurpfile": 2},
        files=names("--rawfile --slurpfile"),
        long_valued=names("indent"),
        refused=names("-f --from-file -L --library-path --run-tests --build-configuration"),
        texts=1,
        check=check_jq,
    ),
}  # fmt: skip
