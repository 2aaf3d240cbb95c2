"""Rules compiled for use: their prompt, the parser of answers, and a matcher that asks a model."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any

from vaka.core.ports.model import Model, Prompt, RetryChunk, StopChunk, TextChunk
from vaka.core.types.errors import ConfigError, ModelRefused, StreamCut, Truncated, VakaError
from vaka.core.types.message import Message, UserMessage, as_content
from vaka.genx.match.lines import LineParser, MatchResult
from vaka.genx.match.prompt import build_prompt, render_prompt
from vaka.genx.match.rules import MatchRule


class CompiledRules:
    """Rules with the prompt made of them. ``warnings`` names what a reader of the rules should know."""

    def __init__(self, rules: Sequence[MatchRule], *, template: str | None = None) -> None:
        if not rules:
            raise ConfigError("a matcher needs at least one rule")
        self.rules = tuple(rules)
        self.by_name: dict[str, MatchRule] = {}
        self.warnings: tuple[str, ...] = ()
        for rule in self.rules:
            if self.by_name.setdefault(rule.name, rule) is not rule:
                text = f"rule {rule.name!r} is defined twice: the first one parses answers, the prompt has both"
                self.warnings += (text,)
        self.prompt = build_prompt(self.rules) if template is None else render_prompt(template, self.rules)

    def parser(self) -> LineParser:
        """Return a new parser for one answer."""
        return LineParser(self.by_name)

    async def match(
        self,
        model: Model,
        messages: str | Sequence[Message],
        *,
        options: Mapping[str, Any] | None = None,
        number: int = 1,
    ) -> AsyncGenerator[MatchResult]:
        """Ask ``model`` and yield each result as soon as its line is complete; this is its n-th call, by ``number``.

        Raises ``ModelError`` after the results of the lines that were complete; the rest of the answer is dropped.
        """
        prompt = Prompt(
            messages=(UserMessage(content=as_content(messages)),) if isinstance(messages, str) else tuple(messages),
            system=self.prompt,
            options=dict(options or {}),
            number=number,
        )
        answer = _Answer(self.parser())
        stream = model.stream(prompt)
        try:
            async for chunk in stream:
                if isinstance(chunk, TextChunk):
                    for result in answer.add(chunk.text):
                        yield result
                elif isinstance(chunk, RetryChunk):
                    answer.restart(self.parser())
                elif isinstance(chunk, StopChunk):
                    _check_reason(chunk.reason)
                    for result in answer.finish():
                        yield result
                    return
        finally:
            await stream.aclose()
        raise StreamCut("the answer ended before its end marker")


class _Answer:
    """The results of one answer. When the model is asked again, results that were given before are skipped."""

    def __init__(self, parser: LineParser) -> None:
        self._parser = parser
        self._given: list[MatchResult] = []
        self._repeated: list[MatchResult] = []

    def restart(self, parser: LineParser) -> None:
        self._parser, self._repeated = parser, list(self._given)

    def add(self, text: str) -> list[MatchResult]:
        return [result for result in self._parser.feed(text) if self._is_new(result)]

    def finish(self) -> list[MatchResult]:
        return [result for result in self._parser.finish() if self._is_new(result)]

    def _is_new(self, result: MatchResult) -> bool:
        if result in self._repeated:
            self._repeated.remove(result)
            return False
        self._given.append(result)
        return True


def compile_rules(rules: Sequence[MatchRule], *, template: str | None = None) -> CompiledRules:
    """Return the rules with their prompt, made by a Jinja ``template`` when one is given. Raises ``ConfigError``."""
    return CompiledRules(rules, template=template)


async def collect(results: AsyncIterator[MatchResult]) -> tuple[list[MatchResult], VakaError | None]:
    """Return all results up to the first error, and that error."""
    found: list[MatchResult] = []
    try:
        async for result in results:
            found.append(result)  # noqa: PERF401  # what came before an error is kept
    except VakaError as error:
        return found, error
    return found, None


def _check_reason(reason: str) -> None:
    if reason == "length":
        raise Truncated("the model reached its output limit; raise max_tokens")
    if reason == "refusal":
        raise ModelRefused("the model refused to answer")
