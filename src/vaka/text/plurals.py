"""The singular of English words, so that a search for one form finds the other."""

from functools import cache
from pathlib import Path

_ES_ENDINGS = ("sses", "xes", "zzes", "ches", "shes", "oes")
_NO_PLURALS = ("ss", "us", "is")


@cache
def _irregular_forms() -> dict[str, str]:
    lines = Path(__file__).with_name("plurals.txt").read_text("utf-8").splitlines()
    return {plural: singular for singular, plural in (line.split() for line in lines if not line.startswith("#"))}


def singular_of(word: str) -> str:
    """Return the singular of a lower-case word that ends like an English plural, other words unchanged."""
    if len(word) < 4 or not word[-2].isalpha():
        return word
    known = _irregular_forms().get(word)
    if known is not None:
        return known
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith(_ES_ENDINGS) and len(word) > 4:
        return word[:-2]
    if word.endswith("uses") and word[-5:-4] not in ("a", "o", ""):  # statuses, but not causes, houses and uses
        return word[:-2]
    return word if word.endswith(_NO_PLURALS) else word[:-1]
