"""The options of ``tar`` in one spelling: old letters without a dash and abbreviated names become plain options."""

import re
from collections.abc import Iterator

from vaka.policy.bash.parse.syntax import Word, Words, literal_word

TAR_PROGRAMS = frozenset({"tar", "gtar", "bsdtar"})

_VALUED_LETTERS = frozenset("fCbTXKNVgIFLH")

_NAMES = (
    *("extract", "get", "create", "append", "update", "directory", "file", "files-from", "to-command", "to-stdout"),
    *("use-compress-program", "checkpoint-action", "remove-files", "one-top-level", "info-script", "rsh-command"),
    *("exclude", "exclude-from", "listed-incremental", "index-file", "transform", "strip-components", "checkpoint"),
)


def spell_tar_options(words: Words) -> Words:
    """Return a command of ``tar`` with old letters as options with a dash, and long options with their full names."""
    if len(words) < 2:
        return words
    first, rest = words[1].value or "", [*words[2:]]
    letters = [*_split_letters(first, rest)] if re.fullmatch(r"[a-zA-Z]+", first) else [words[1]]
    return (words[0], *map(_complete_name, (*letters, *rest)))


def _split_letters(letters: str, rest: list[Word]) -> Iterator[Word]:
    """Yield each letter as an option, with the value that it takes from the words after the letters."""
    for letter in letters:
        yield literal_word(f"-{letter}")
        if letter in _VALUED_LETTERS and rest:
            yield rest.pop(0)


def _complete_name(word: Word) -> Word:
    name, equals, value = (word.value or "").partition("=")
    if len(name) < len("--xx") or not name.startswith("--"):
        return word
    full = next((one for one in _NAMES if one.startswith(name[2:])), name[2:])
    return literal_word(f"--{full}{equals}{value}") if full != name[2:] else word
