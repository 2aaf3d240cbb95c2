"""Pasted text: the input shows a short label in place of a long one, and a sign in place of an invisible character."""

import re
import unicodedata

from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput

from vaka.cli.strings import translate

MAX_LINES = 8
MAX_CHARACTERS = 1000
"""A paste of more lines or characters than these is folded."""

_JOINERS = "\u200c\u200d"
"""Invisible characters that some scripts need within a word."""
_PASTE_MARKS = re.compile(r"\x1b\[20[01]~")


def clean_paste(text: str) -> str:
    """Return pasted text with line feeds, without the sequences with which a terminal encloses a paste."""
    return _PASTE_MARKS.sub("", text).replace("\r\n", "\n").replace("\r", "\n")


class VisibleInput(Processor):
    """Shows a sign in place of each invisible character of the input, such as a character that reverses later text.

    Control characters are shown by ``BufferControl`` itself.
    """

    def __init__(self, sign: str) -> None:
        self._sign = sign

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        shown = [(part[0], self._make_visible(part[1])) for part in transformation_input.fragments]
        return Transformation([*shown])

    def _make_visible(self, text: str) -> str:
        if text.isprintable():
            return text
        return "".join(self._sign if unicodedata.category(c) == "Cf" and c not in _JOINERS else c for c in text)


class PastedTexts:
    """The folded texts of one input, by their labels."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def fold(self, text: str) -> str:
        """Return what the input shows for a paste: the text, or a label if it is long."""
        lines = text.count("\n") + 1
        if lines <= MAX_LINES and len(text) <= MAX_CHARACTERS:
            return text
        characters = translate("{count} characters", count=len(text))
        size = translate("{count} lines", count=lines) if lines > MAX_LINES else characters
        label, number = translate("[pasted {size}]", size=size), 1
        while self._texts.get(label, text) != text:
            number += 1
            label = translate("[pasted {size}, {number}]", size=size, number=number)
        self._texts[label] = text
        return label

    def expand(self, text: str) -> str:
        """Return an input with the whole texts in place of their labels."""
        if not self._texts:
            return text
        labels = "|".join(map(re.escape, self._texts))
        return re.sub(labels, lambda match: self._texts[match[0]], text)

    def label_before(self, text: str) -> str:
        """Return the label at the end of a text, ``""`` for none."""
        return next((label for label in self._texts if text.endswith(label)), "")

    def clear(self) -> None:
        self._texts.clear()
