"""Programs that tell something about files and the machine."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

from vaka.policy.bash.profile.options import Parsed, Program, Refused, any_use
from vaka.policy.bash.profile.ps import PS
from vaka.policy.bash.text import names
from vaka.policy.bash.words import Word, Words


def _only_formats(parsed: Parsed) -> None:
    for word in parsed.operands:
        if not word.prefix.startswith("+"):
            raise Refused("date with a time sets the clock")


def _pages(parsed: Parsed) -> None:
    for word in parsed.operands:
        if word.value is None or "/" in word.value:
            raise Refused("man formats a file that is not known to be a page")


PROGRAMS: Mapping[str, Program] = {
    "ls": any_use(valued="ITw"),
    "stat": any_use(valued="cft"),
    "du": any_use(valued="BdtX", files="-X --exclude-from --files0-from"),
    "df": any_use(valued="Btx"),
    "pwd": any_use(paths=False),
    "realpath": any_use(),
    "whoami": any_use(paths=False),
    "which": any_use(paths=False),
    "type": any_use(paths=False),
    "date": Program(
        flags="uRjn", valued="drfvz", attached="I",
        long=names("utc universal rfc-email iso-8601 debug help version"),
        long_valued=names("date reference file rfc-3339 resolution"),
        refused=names("-s --set"),
        files=names("-f --file -r --reference"),
        paths=False,
        check=_only_formats,
    ),
    "file": Program(
        flags="bchiIklLnNrsvzZ0dEp", valued="eFfP",
        long=names(
            "brief mime mime-type mime-encoding apple extension keep-going dereference no-dereference no-buffer"
            " no-pad raw special-files uncompress uncompress-noreport print0 version help list checking-printout"
            " debug"
        ),
        long_valued=names("exclude exclude-quiet separator files-from parameter"),
        refused=names("-C --compile -m --magic-file -p --preserve-date -S --no-sandbox"),
        files=names("-f --files-from"),
    ),
    "tree": Program(
        flags="adflxpsugDhCnAFqNQSvtcrUXJix", valued="LPI",
        long=names(
            "noreport si du prune inodes device filesfirst dirsfirst help version matchdirs ignore-case metafirst"
            " gitignore noreport hintro houtro charset sort filelimit timefmt"
        ),
        long_valued=names("gitfile infofile"),
        refused=names("-o -R -H --output --fromfile --fromtabfile"),
        files=names("--gitfile --infofile"),
    ),
    "man": Program(
        flags="afkwWiId7", valued="seS",
        long=names(
            "all whatis apropos where path location where-cat ignore-case match-case names-only regex wildcard"
        ),
        long_valued=names("sections section extension"),
        refused=names(
            "-P --pager -H --html -C --config-file -l --local-file -M --manpath -L --locale -m --systems -p"
            " --preprocessor -t --troff -T --troff-device -X --gxditview -Z --ditroff -K --global-apropos -D"
            " --default -R --recode -E --encoding -r --prompt -c --catman"
        ),
        paths=False,
        check=_pages,
    ),
    "ps": PS,
}  # fmt: skip


def read_xxd(words: Words) -> list[Word]:
    """xxd: one file, since the second would be written."""
    operands: list[Word] = []
    takes = False
    for word in words:
        value = word.value
        if operands:
            raise Refused("whatever stands behind the file would be written to")
        if takes and not word.splits:
            takes = False
        elif value is not None and value in _XXD_VALUED:
            takes = True
        elif value is not None and value.startswith("-") and value != "-":
            _known_xxd(value)
        elif word.splits or word.prefix.startswith("-"):
            raise Refused(f"{word.source} may become a file to write")
        else:
            operands.append(word)
    return operands


_XXD_VALUED = names("-c -g -l -n -o -s -R -cols -len -seek -name -groupsize -offset")
_XXD_FLAGS = names(
    "-a -b -C -d -e -E -i -p -ps -plain -r -u -v -h -autoskip -bits -include -revert -uppercase -postscript"
)


def _known_xxd(value: str) -> None:
    if value not in _XXD_FLAGS and not (value[:2] in _XXD_VALUED and value[2:].lstrip("+-").isalnum()):
        raise Refused(f"{value} is not known to only read")


_EVALUATES = frozenset({"-v", "-R"})
_COMPARES = frozenset({"=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"})
_UNARY = re.compile(r"-[b-hknp-uwxzGLNOS]")
"""Operators of ``test`` that look at the next word, whatever it is."""


def read_test(words: Words) -> list[Word]:
    """``test`` and ``[``: ``-v`` and ``-R`` work out subscripts, and those can run commands."""
    for at, word in enumerate(words):
        if word.value in _EVALUATES:
            raise Refused(f"{word.value} works out what follows, which can run commands")
        if word.value is None and _may_evaluate(word, words[at - 1 : at] if at else (), words[at + 1 : at + 2]):
            raise Refused(f"{word.source} may become -v, which works out what follows, and that can run commands")
    return []


def _may_evaluate(word: Word, before: Words, after: Words) -> bool:
    """Return whether a word may turn out as one of the operators: as one of several, or where one can stand."""
    if all(hole.number or hole.counts or hole.name == "!" for hole in word.holes):
        return False
    shown = "".join(piece if isinstance(piece, str) else piece.name for piece in word.pieces)
    if word.splits and all(hole.kind == "glob" for hole in word.holes):
        return any(fnmatchcase(operator, shown) for operator in _EVALUATES)
    if word.splits:
        return True
    compared = any(other.value in _COMPARES for other in (*before, *after))
    looked_at = bool(before) and _UNARY.fullmatch(before[0].value or "") is not None
    alone = not before and (not after or after[0].value == "]")
    return word.prefix in {"", "-"} and not (compared or looked_at or alone)


def read_exec(words: Words) -> list[Word]:
    """``exec 2>&1``: without a command it only turns streams, and those are judged on their own."""
    if words:
        raise Refused("it runs another command")
    return []


def read_command(words: Words) -> list[Word]:
    """``command -v``: where a command is."""
    if not words or words[0].value not in {"-v", "-V"}:
        raise Refused("it runs another command")
    return []
