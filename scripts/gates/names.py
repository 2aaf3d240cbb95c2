"""Rules of naming that a program can check: function names, class names, and words that hide who acts."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from scripts.gates.tree import File, Problem

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

PARTICIPLE = re.compile(r"[a-z]+(?:ed|ing)")
NOT_PARTICIPLES = frozenset(
    {
        "bring",
        "embed",
        "exceed",
        "feed",
        "need",
        "ping",
        "proceed",
        "seed",
        "shed",
        "speed",
        "string",
        "binding",
        "encoding",
        "heading",
        "padding",
        "setting",
        "spelling",
    }
)
"""Verbs and nouns that end like a participle."""
IRREGULAR_PARTICIPLES = frozenset(
    {
        "begun",
        "bound",
        "broken",
        "brought",
        "built",
        "chosen",
        "done",
        "drawn",
        "driven",
        "fallen",
        "felt",
        "found",
        "given",
        "gone",
        "grown",
        "heard",
        "held",
        "hidden",
        "kept",
        "known",
        "laid",
        "led",
        "left",
        "lent",
        "lost",
        "made",
        "meant",
        "met",
        "paid",
        "said",
        "seen",
        "sent",
        "shown",
        "spent",
        "spoken",
        "stolen",
        "taken",
        "thrown",
        "told",
        "torn",
        "understood",
        "woken",
        "worn",
        "written",
    }
)
VAGUE_WORDS = frozenset(
    {
        "again",
        "alike",
        "alone",
        "anew",
        "apart",
        "bare",
        "better",
        "elsewhere",
        "far",
        "fine",
        "free",
        "fresh",
        "full",
        "good",
        "here",
        "hopeless",
        "large",
        "late",
        "mine",
        "nearby",
        "needless",
        "new",
        "now",
        "odd",
        "ours",
        "overdue",
        "patient",
        "plain",
        "quiet",
        "ready",
        "right",
        "same",
        "short",
        "small",
        "sound",
        "steady",
        "such",
        "there",
        "these",
        "thing",
        "this",
        "those",
        "true",
        "unlike",
        "usual",
        "whole",
        "wide",
        "wrong",
    }
)
"""Adjectives, adverbs and pronouns that name no action and no thing at a call site."""

BANNED = re.compile(
    r"\b(?:nobody|somebody|whoever|told|came to (?:its|their|an) end|what (?:it|they|that|this) came to"
    r"|put away|is one,? too|has the word)\b",
    re.IGNORECASE,
)
PROSE = (".md", ".toml", ".yml", ".sh", ".rs")
# The rules name the words they forbid; recorded logs and a field of a stored event are not prose.
EXEMPT = ("scripts/gates/names.py", "tests/golden/", "LICENSE", "schema/")
STORED_FIELD = re.compile(r"^[\"'`]*told[\"'`]*$|`told`|\btold=")


def is_property(node: FunctionNode) -> bool:
    """Tell whether a function is read like an attribute."""
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    return any("property" in text or text.endswith((".setter", "fixture")) for text in decorators)


def is_participle(name: str) -> bool:
    """Tell whether the whole name of a function is one participle or adjective."""
    word = name.strip("_")
    if "_" in word or word in NOT_PARTICIPLES:
        return False
    return word in IRREGULAR_PARTICIPLES or word in VAGUE_WORDS or PARTICIPLE.fullmatch(word) is not None


def function_names(file: File) -> Iterator[Problem]:
    """Yield each function whose name is not a verb phrase or the noun it returns."""
    for node in file.nodes:
        if not isinstance(node, FunctionNode) or node.name.startswith("__"):
            continue
        if is_participle(node.name) and not is_property(node):
            text = f"{node.name!r} is not a verb phrase; name what the function does or returns"
            yield file.problem(node.lineno, text)


def sentences(file: File) -> Iterator[tuple[int, str]]:
    """Yield the prose of a file with its lines: comments and strings of Python, all of a text."""
    if not file.is_python():
        yield from enumerate(file.lines, 1)
        return
    for token in file.prose:
        yield from enumerate(token.string.splitlines(), token.start[0])


def banned_words(file: File) -> Iterator[Problem]:
    """Yield each sentence with a word that hides who acts."""
    if file.path.startswith(EXEMPT) or not (file.is_python() or file.path.endswith(PROSE)):
        return
    for line, text in sentences(file) if BANNED.search(file.text or "") else ():
        if (found := BANNED.search(text)) and not STORED_FIELD.search(text) and not is_schema_text(file.root, text):
            yield file.problem(line, f"{found[0]!r}: name the process, the caller or the mechanism instead")


@cache
def schema_text(root: Path) -> str:
    """Return the schema of events: its descriptions are part of a stored format and do not change."""
    path = root / "schema" / "events.schema.json"
    return path.read_text("utf-8") if path.exists() else ""


def is_schema_text(root: Path, text: str) -> bool:
    """Tell whether a line is, or quotes, a description in the schema of events."""
    pieces = [part.strip() for part in re.split(r'"{1,3}|\||`: ', text)]
    return any(len(piece) > 20 and piece in schema_text(root).replace('\\"', '"') for piece in pieces)


def check_file(file: File) -> Iterator[Problem]:
    """Yield what is wrong with the names and words of one file."""
    if file.is_python("src", "scripts", "bench"):
        yield from function_names(file)
    yield from banned_words(file)


def check_all(everything: list[File]) -> Iterator[Problem]:
    """Yield each public class whose name exists twice in src."""
    places: defaultdict[str, list[tuple[File, int]]] = defaultdict(list)
    for file in everything:
        if file.is_python("src"):
            for node in file.tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append((file, node.lineno))
    for name, found in places.items():
        for file, line in found if len(found) > 1 else ():
            yield file.problem(line, f"class {name!r} exists {len(found)} times; one name, one class")
