"""A matcher without a model: the patterns as templates with captures, and the similarity of texts."""

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import mul

import msgspec

from vaka.core.ports.model import Embedder
from vaka.core.types.errors import ConfigError
from vaka.genx.match.lines import MatchResult, convert_value, split_args
from vaka.genx.match.rules import MatchRule, Pattern, RuleVar, Scalar
from vaka.genx.match.utterance import (
    Utterance,
    find_number,
    is_dense,
    is_hangul,
    is_negated,
    read_utterance,
    split_clauses,
    split_sentences,
    strip_fillers,
    typed_number,
    words_of,
)

DEFAULT_THRESHOLD = 0.5
MAX_TEXT = 4_000
"""Characters that are compared; the rest of a longer text is not."""
MAX_CLAUSES = 12
_BRACKETS = re.compile(r"\[([^\[\]]+)\]")
_NGRAM = 3
_UNKNOWN_WEIGHT = 0.3
"""The weight of a word that no rule knows, relative to a word that a single rule has."""
_UNCOVERED_WEIGHT = 0.6
_NUMBER_FACTOR = 1.25
"""A text with a number is nearer to patterns with a number, a text without a number is farther from them."""
_EMBEDDING_FLOOR = 0.3
"""Similarity of unrelated texts in common embeddings."""
_EMBEDDING_MARGIN = 0.1
"""How much nearer the best rule must be than others: texts that an embedder does not know are all near each other."""


class _Template(msgspec.Struct, frozen=True):
    """A pattern: the texts between its placeholders, and the value of each argument (text, or a placeholder)."""

    rule: MatchRule
    plain: str
    literals: tuple[str, ...]
    slots: tuple[str, ...]
    glued: tuple[tuple[bool, bool], ...]
    """Of each literal, whether it touches the placeholder before and after it."""
    args: tuple[tuple[str, str], ...]
    joint: int
    """The literal before a placeholder at the end, of which the last occurrence counts: *by* in *stand by me by X*."""
    size: int
    """Characters of the literals without spaces."""
    negated: bool


class _Found(msgspec.Struct, frozen=True):
    """A template that fits a clause."""

    template: _Template
    score: float
    captures: dict[str, str] = {}


class OfflineMatcher:
    """Finds the rules that a text expresses, without a model.

    A clause matches the pattern whose words it has, or else the most similar pattern or example of all rules, if the
    score of it, between 0 and 1, is at least ``threshold``. With an ``embedder``, sentences of a text in which nothing
    matches are compared by their vectors.
    """

    def __init__(
        self, rules: Sequence[MatchRule], *, threshold: float = DEFAULT_THRESHOLD, embedder: Embedder | None = None
    ) -> None:
        if not rules:
            raise ConfigError("a matcher needs at least one rule")
        if not 0 < threshold <= 1:
            raise ConfigError(f"the threshold of a matcher is above 0 and at most 1, not {threshold!r}")
        self._threshold, self._embedder = threshold, embedder
        self._rules = {rule.name: rule for rule in reversed(rules)}
        self._templates = [template for rule in rules for template in _templates_of(rule, self._rules)]
        self._anchors = [(max(template.literals, key=len), template) for template in self._templates]
        self._index = _SimilarityIndex(self._templates)
        self._number_factors = {
            found: [1.0 if not _has_number(template) else more for template in self._templates]
            for found, more in ((True, _NUMBER_FACTOR), (False, 1 / _NUMBER_FACTOR))
        }
        self._vectors: _VectorIndex | None = None

    def match(self, text: str) -> list[MatchResult]:
        """Return the rules that ``text`` expresses, in its order; ``[]`` when there are none. Uses no embedder."""
        results: list[MatchResult] = []
        for sentence in _split(text):
            for found, clause in self._match_sentence(sentence):
                result = self._result_of(found, clause)
                if all((result.rule, result.args) != (other.rule, other.args) for other in results):
                    results.append(result)
        return results

    async def match_async(self, text: str) -> list[MatchResult]:
        """Like ``match``; when nothing matches, the vectors of the embedder are compared, if there is one."""
        results = self.match(text)
        sentences = _split(text)
        if results or self._embedder is None or not sentences or not self._templates:
            return results
        if self._vectors is None:
            self._vectors = _VectorIndex(await self._embedder.embed([template.plain for template in self._templates]))
        vectors = await self._embedder.embed([read_utterance(sentence).plain for sentence in sentences])
        found = [self._nearest(*pair) for pair in zip(sentences, map(self._vectors.scores, vectors), strict=True)]
        return [self._result_of(one, clause) for one, clause in zip(found, sentences, strict=True) if one is not None]

    def _nearest(self, sentence: str, scores: Sequence[float]) -> _Found | None:
        """Return the template with the nearest vector, if it is clearly nearer than the templates of other rules."""
        utterance = read_utterance(sentence)
        candidates = list(map(_Found, self._templates, scores))
        best = self._choose(utterance, candidates)
        others = [found.score for found in candidates if best is None or found.template.rule is not best.template.rule]
        return best if best is not None and best.score >= max(others, default=0.0) + _EMBEDDING_MARGIN else None

    def _match_sentence(self, sentence: str) -> Iterator[tuple[_Found, str]]:
        """Yield the matches. A clause is part of the previous clause unless both match by themselves."""
        spans = split_clauses(sentence)
        spans = spans if len(spans) <= MAX_CLAUSES else [(0, len(sentence))]
        start, end = spans[0]
        current = self._best(sentence[start:end])
        for next_start, next_end in spans[1:]:
            alone = self._best(sentence[next_start:next_end])
            if current is not None and alone is not None:
                yield current, sentence[start:end]
                start, current = next_start, alone
            else:
                current = self._best(sentence[start:next_end]) or current or alone
            end = next_end
        if current is not None:
            yield current, sentence[start:end]

    def _best(self, clause: str) -> _Found | None:
        utterance = read_utterance(clause)
        text = utterance.plain
        if not text:
            return None
        possible = [template for anchor, template in self._anchors if anchor in text]
        fit = self._choose(utterance, filter(None, (_fit(template, utterance) for template in possible)))
        first, last = strip_fillers(text)
        scores = map(mul, self._index.scores(text[first:last]), self._number_factors[find_number(text) is not None])
        similar = self._choose(utterance, map(_Found, self._templates, scores))
        if fit is None or similar is None:
            return fit or similar
        return fit if fit.score >= similar.score or fit.template.rule is similar.template.rule else similar

    def _choose(self, utterance: Utterance, candidates: Iterable[_Found]) -> _Found | None:
        """Return the best candidate above the threshold; a text with *not* needs a pattern with it."""
        negated = is_negated(utterance)
        return max(
            (found for found in candidates if found.score >= self._threshold and found.template.negated >= negated),
            key=lambda found: (found.score, found.template.size),
            default=None,
        )

    def _result_of(self, found: _Found, clause: str) -> MatchResult:
        rule = found.template.rule
        args: dict[str, Scalar | None] = dict.fromkeys(rule.vars)
        for name, value in found.template.args:
            var = rule.vars.get(name, RuleVar())
            slot = _BRACKETS.fullmatch(value)
            if slot is None:
                args[name] = convert_value(value, var.type)
            elif slot[1] in found.captures:
                args[name] = _convert_capture(found.captures[slot[1]], var.type)
        missing = [name for name, var in rule.vars.items() if args[name] is None and var.type in ("int", "float")]
        if len(missing) == 1:
            args[missing[0]] = typed_number(clause, rule.vars[missing[0]].type)
        return MatchResult(rule.name, args, clause.strip(), round(found.score, 3))


class _SimilarityIndex:
    """Cosine similarity of texts by their words and parts of words; words that few rules have weigh more."""

    def __init__(self, templates: Sequence[_Template]) -> None:
        rules_of: dict[str, set[str]] = defaultdict(set)
        features = [_features_of(template.plain) for template in templates]
        for template, counts in zip(templates, features, strict=True):
            for feature in counts:
                rules_of[feature].add(template.rule.name)
        total = len({template.rule.name for template in templates}) + 1
        self._weights = {feature: math.log(total / len(names)) + 0.05 for feature, names in rules_of.items()}
        self._unknown = math.log(total) * _UNKNOWN_WEIGHT
        self._postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
        self._count = len(templates)
        for number, counts in enumerate(features):
            vector = {feature: count * self._weights[feature] for feature, count in counts.items()}
            length = math.sqrt(sum(weight * weight for weight in vector.values())) or 1.0
            for feature, weight in vector.items():
                self._postings[feature].append((number, weight / length))

    def scores(self, plain: str) -> list[float]:
        """Return the similarity of a text with each template."""
        scores = [0.0] * self._count
        squares = 0.0
        for feature, count in _features_of(plain).items():
            weight = count * self._weights.get(feature, self._unknown)
            squares += weight * weight
            for number, other in self._postings.get(feature, ()):
                scores[number] += weight * other
        length = math.sqrt(squares) or 1.0
        return [score / length for score in scores]


def _features_of(plain: str) -> dict[str, float]:
    """Return the words, pairs of words and n-grams of a text with their weights."""
    counts: Counter[str] = Counter()
    words = list(words_of(plain))
    for word, dense in words:
        if dense:
            counts.update(word)
            counts.update(first + second for first, second in pairwise(word))
        else:
            counts[f"={word}"] += 1
            marked, length = f"<{word}>", 2 if is_hangul(word[0]) else _NGRAM
            counts.update(marked[at : at + length] for at in range(len(marked) - length + 1))
    counts.update(f"{first} {second}" for (first, _), (second, _) in pairwise(words))
    return {feature: math.sqrt(count) * (0.5 if _is_small(feature) else 1.0) for feature, count in counts.items()}


def _is_small(feature: str) -> bool:
    return len(feature) == 1 or (len(feature) == _NGRAM and feature[0] != "=" and " " not in feature)


class _VectorIndex:
    """Cosine similarity with vectors of length 1, scaled so that unrelated texts have 0."""

    def __init__(self, vectors: list[list[float]]) -> None:
        self._vectors = vectors
        self._postings: list[list[tuple[int, float]]] = [[] for _ in vectors[0]]
        for number, vector in enumerate(vectors):
            for dimension, weight in enumerate(vector):
                if weight:
                    self._postings[dimension].append((number, weight))

    def scores(self, vector: Sequence[float]) -> list[float]:
        """Return the similarity of a vector with each of the index; a vector of mostly zeros is cheap."""
        used = [(dimension, weight) for dimension, weight in enumerate(vector) if weight]
        if len(used) * 4 > len(vector):
            cosines: list[float] = [sum(map(mul, vector, other)) for other in self._vectors]
        else:
            cosines = [0.0] * len(self._vectors)
            for dimension, weight in used:
                for number, other in self._postings[dimension]:
                    cosines[number] += weight * other
        return [max(0.0, (cosine - _EMBEDDING_FLOOR) / (1 - _EMBEDDING_FLOOR)) for cosine in cosines]


def _split(text: str) -> list[str]:
    return split_sentences(unicodedata.normalize("NFC", text[:MAX_TEXT]))


def _convert_capture(text: str, kind: str) -> Scalar:
    value = convert_value(text, kind)
    if kind in ("int", "float") and isinstance(value, str):
        number = typed_number(text, kind)
        return text if number is None else number
    return value


# --------------------------------------------------------------------------------------------------------- templates


def _templates_of(rule: MatchRule, rules: dict[str, MatchRule]) -> Iterator[_Template]:
    for pattern in rule.patterns:
        if template := _template_of(rule, pattern):
            yield template
    for example in rule.examples:
        lines = [line for line in example.output.splitlines() if line.strip()]
        if len(lines) == 1 and example.user_text:
            name = lines[0].partition(":")[0].strip()
            args = tuple(split_args(lines[0].partition(":")[2]))
            said = read_utterance(example.user_text)
            plain, owner = said.plain, rules.get(name)
            if owner is not None and plain:
                yield _Template(owner, plain, (plain,), (), ((False, False),), args, 0, _size(plain), is_negated(said))


def _template_of(rule: MatchRule, pattern: Pattern) -> _Template | None:
    if pattern.output:
        args = tuple(split_args(pattern.output.partition(":")[2] if ":" in pattern.output else pattern.output))
        slots = {value[1:-1] for _, value in args if _BRACKETS.fullmatch(value)}
    else:
        slots = set(rule.vars)
        args = tuple((name, f"[{name}]") for name in slots)
    literals, names = [""], list[str]()
    for number, part in enumerate(_BRACKETS.split(pattern.input)):
        if number % 2 and part in slots:
            names.append(part)
            literals.append("")
        else:
            literals[-1] += part
    plain = [read_utterance(literal).plain for literal in literals]
    size = _size("".join(plain))
    if not size:
        return None
    middle = [text or " " for text in plain[1:-1]]
    glued = tuple(
        (number > 0 and text[:1].strip() != "", number < len(names) and text[-1:].strip() != "")
        for number, text in enumerate(literals)
    )
    shown = read_utterance(" ".join(plain)).plain
    texts = (plain[0], *middle, *plain[-1:]) if names else (plain[0],)
    joint = len(names) - 1 if len(names) > 1 and not plain[-1] and plain[-2] and not is_dense(plain[-2][0]) else 0
    return _Template(
        rule, shown, texts, tuple(names), glued, args, joint, size, is_negated(read_utterance(pattern.input))
    )


def _has_number(template: _Template) -> bool:
    return any(template.rule.vars.get(slot, RuleVar()).type in ("int", "float") for slot in template.slots)


def _size(plain: str) -> int:
    return len(plain) - plain.count(" ")


def _fit(template: _Template, utterance: Utterance) -> _Found | None:
    """Return how a template fits a clause: its literals in order, with text for each placeholder between them."""
    text = utterance.plain
    captures = dict[str, str]()
    at = 0
    begin = 0
    if any(literal not in text for literal in template.literals):
        return None
    last = len(template.literals) - 1
    for number, literal in enumerate(template.literals):
        if number == last and not literal:
            place, end = len(text), len(text)
        else:
            place = _find(text, literal, at + (number > 0), template.glued[number], from_end=number == template.joint)
            end = place + len(literal)
        if place < 0:
            return None
        if number == 0:
            begin = place
        elif not (value := _read_capture(utterance, at, place, at_start=not template.literals[0] and number == 1)):
            return None
        else:
            captures[template.slots[number - 1]] = value
        at = end
    begin = 0 if not template.literals[0] else begin
    uncovered = _size_without_fillers(text[:begin]) + _size_without_fillers(text[at:])
    captured = sum(_size(read_utterance(value).plain) for value in captures.values())
    covered = template.size + 0.3 * captured
    score = covered / (covered + _UNCOVERED_WEIGHT * uncovered) * template.size / (template.size + 0.4)
    return _Found(template, score, captures)


def _find(text: str, literal: str, start: int, glued: tuple[bool, bool], *, from_end: bool) -> int:
    """Return where a literal is whole words in a text, ``-1`` if nowhere."""
    places = _places(text, literal, start)
    fitting = [place for place in places if _is_whole(text, place, place + len(literal), glued)]
    return -1 if not fitting else fitting[-1 if from_end else 0]


def _places(text: str, literal: str, start: int) -> Iterator[int]:
    place = text.find(literal, start) if literal else start
    while place >= 0:
        yield place
        place = text.find(literal, place + 1) if literal else -1


def _is_whole(text: str, start: int, end: int, glued: tuple[bool, bool]) -> bool:
    before = text[start - 1 : start] + text[start : start + 1]
    after = text[end - 1 : end] + text[end : end + 1]
    return (glued[0] or _is_break(before)) and (glued[1] or _is_break(after) or is_hangul(after[0]))


def _is_break(pair: str) -> bool:
    """Return whether two characters are not of the same word; a text has an end there if it is one character."""
    return len(pair) < 2 or " " in pair or is_dense(pair[0]) or is_dense(pair[1])


def _read_capture(utterance: Utterance, start: int, end: int, *, at_start: bool) -> str:
    text = utterance.plain[start:end]
    first, last = strip_fillers(text)
    first = first if at_start else 0
    last = last if end == len(utterance.plain) else len(text)
    first += len(text[first:last]) - len(text[first:last].lstrip())
    return utterance.original(start + first, start + max(first, last))


def _size_without_fillers(plain: str) -> int:
    start, end = strip_fillers(plain + " ") if plain else (0, 0)
    return _size(plain[start:end])
