"""Rules of naming that a program can check: function names, class names, and words that hide the subject of a sentence."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator

from scripts.gates.tree import File, Problem

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

PARTICIPLE = re.compile(r"[a-z]+(?:ed|ing)")
VERBS = frozenset(
    "bring embed exceed feed need ping proceed seed shed speed string bind_string"
    " heading setting binding padding encoding spelling".split()  # nouns
)
"""Words that end like a participle and are none."""
IRREGULAR = frozenset(
    [
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
        "put_away",
        "run_out",
        "said",
        "seen",
        "sent",
        "shown",
        "spent",
        "spoken",
        "stolen",
        "taken",
        "told",
        "torn",
        "thrown",
        "understood",
        "woken",
        "worn",
        "written",
    ]
)
VAGUE = frozenset(
    [
        "again",
        "alike",
        "alone",
        "anew",
        "apart",
        "bare",
        "better",
        "clean_one",
        "elsewhere",
        "far",
        "fine",
        "fit",
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
        "next_one",
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
    ]
)
"""Adjectives, adverbs and pronouns that say nothing at a call site."""

BANNED = re.compile(
    r"\b(?:nobody|somebody|whoever|told|c(?:a|o)me to (?:its|their|an) end|what (?:it|they|that|this) came to"
    r"|put away|is one,? too|has the word)\b",
    re.IGNORECASE,
)
PROSE = (".md", ".toml", ".yml", ".sh", ".rs", ".luau")
# The rules themselves name the words they forbid.
EXEMPT = ("scripts/gates/names.py", "tests/golden/", "LICENSE")


def is_property(node: FunctionNode) -> bool:
    """Tell whether a function is read like an attribute."""
    return any(
        "property" in ast.unparse(decorator) or ".setter" in ast.unparse(decorator) for decorator in node.decorator_list
    )


def is_participle(name: str) -> bool:
    """Tell whether a function's whole name is one participle or adjective."""
    word = name.strip("_")
    if "_" in word or word in VERBS:
        return False
    return word in IRREGULAR or word in VAGUE or PARTICIPLE.fullmatch(word) is not None


def function_names(file: File) -> Iterator[Problem]:
    """Yield each function whose name is not a verb phrase or the noun it returns."""
    for node in ast.walk(file.tree):
        if isinstance(node, FunctionNode) and not node.name.startswith("__"):
            if is_participle(node.name) and not is_property(node):
                yield file.problem(
                    node.lineno, f"{node.name!r} is not a verb phrase; say what the function does or returns"
                )


def sentences(file: File) -> Iterator[tuple[int, str]]:
    """Yield what people read in a file, with its line: comments and strings of Python, all of a text."""
    if not file.is_python():
        yield from enumerate(file.lines, 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(file.text or "").readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield from enumerate(token.string.splitlines(), token.start[0])


def words(file: File) -> Iterator[Problem]:
    """Yield each sentence with a word that hides who acts."""
    if file.path.startswith(EXEMPT) or not (file.is_python() or file.path.endswith(PROSE)):
        return
    for line, text in sentences(file):
        if found := BANNED.search(text):
            yield file.problem(line, f"{found[0]!r}: name the process, the caller or the mechanism instead")


def check(file: File) -> Iterator[Problem]:
    """Yield what is wrong with the names and words of one file."""
    if file.is_python("src", "scripts", "bench"):
        yield from function_names(file)
    yield from words(file)


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
