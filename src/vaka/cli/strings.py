"""Interface texts in the language of the user. The English text is the key of its translation."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

LANGUAGES = ("en", "zh")
"""The languages of the interface; ``strings_LANGUAGE.json`` has the translations of each but English."""


class _Translations:
    """The table in use; it is read on first use, and for English there is none to read."""

    def __init__(self) -> None:
        self.language = ""
        self.table: Mapping[str, str] | None = None


_translations = _Translations()


def use_language(language: str) -> None:
    """Translate into this language from now on; ``""``: the language of the environment."""
    if language != _translations.language:
        _translations.language, _translations.table = language, None


def translate(text: str, /, **values: object) -> str:
    """Return a text in the user's language, with ``{name}`` replaced by the value of that name.

    A text in a call is a constant, or was marked with ``mark_translatable``: a test finds both in the source.
    """
    if _translations.table is None:
        _translations.table = load_translations(_translations.language or language_of(os.environ))
    found = _translations.table.get(text, text)
    return found.format_map(values) if values else found


def mark_translatable(text: str) -> str:
    """Return a text unchanged; it is passed to ``translate`` where it is shown."""
    return text


def language_of(environ: Mapping[str, str]) -> str:
    """Return the language of ``VAKA_LANG`` or of the locale; English if a locale cannot show others."""
    if environ.get("VAKA_LANG") in LANGUAGES:
        return environ["VAKA_LANG"]
    messages = next((environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environ.get(name)), "")
    characters = next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "")
    language = messages.replace(".", "_").partition("_")[0].lower()
    return language if language in LANGUAGES and "utf" in characters.lower() else "en"


def load_translations(language: str) -> Mapping[str, str]:
    """Return the texts of a language by their English text."""
    if language == "en":
        return {}
    data = Path(__file__).with_name(f"strings_{language}.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, str])
