"""Rules held against one simple command."""

from collections.abc import Iterator, Sequence

from vaka.policy.bash.patterns import Fit, Pattern, View, fits_whole, patterns, spans_commands
from vaka.policy.bash.readings import forbidding, named
from vaka.policy.bash.verdicts import Decision, Opinion, Rule
from vaka.policy.bash.words import Simple, Words, literal
from vaka.policy.bash.wrappers import EXACT

_ACTS = frozenset({"-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls"})
_FD_ACTS = frozenset({"-x", "--exec", "-X", "--exec-batch"})


class Rules:
    """Rules with their patterns taken apart, so that many commands can be judged by them."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.deny = _of("deny", rules)
        self.ask = _of("ask", rules)
        self.allow = _of("allow", rules)
        everything = next((rule for rule, said in self.allow if said.kind == "any"), None)
        self.any = Opinion("allow", everything.text, everything.layer) if everything is not None else None
        """What allows every command, if anything does."""
        self._whole = [rule for rule in rules if rule.kind != "allow" and spans_commands(rule.pattern)]
        self._answers = {
            text: [(rule, said) for rule, said in self.allow if text in rule.answers]
            for text in {text for rule, _ in self.allow for text in rule.answers}
        }

    def forbids(self, simple: Simple) -> Opinion | None:
        """Return the rule that denies a command or asks about it; one that perhaps denies it asks."""
        if not self.deny and not self.ask:
            return None
        views = [View(words) for words in forbidding(simple)]
        perhaps: Opinion | None = None
        for rule, said in self.deny:
            fits = _fits(said, views)
            if fits == "yes":
                return Opinion("deny", rule.text, rule.layer, f"the rule {rule.text} denies it")
            if fits == "maybe" and perhaps is None:
                perhaps = Opinion("ask", rule.text, rule.layer, f"the rule {rule.text} may deny what it becomes")
        for rule, said in self.ask:
            if _fits(said, views) != "no" and not self.answered(rule.text, simple):
                return Opinion("ask", rule.text, rule.layer, f"the rule {rule.text} asks about it")
        return perhaps

    def forbids_whole(self, text: str) -> Iterator[Opinion]:
        """Yield what rules that name several commands at once, as ``curl * | sh``, say of a line as it is written."""
        for rule in self._whole:
            if fits_whole(rule.pattern or "", text):
                does = "denies it" if rule.kind == "deny" else "asks about it"
                yield Opinion(rule.kind, rule.text, rule.layer, f"the rule {rule.text} {does}")

    def allows(self, simple: Simple) -> Opinion | None:
        """Return the rule that allows a command."""
        return self._allows(simple, self.allow)

    def allows_assigned(self, simple: Simple) -> Opinion | None:
        """Return the rule that allows a command together with the variables that are set for it, word by word."""
        values = [one.value.value for one in simple.assignments]
        if not self.allow or not values or None in values or _exact_only(simple.words):
            return None
        names = (literal(f"{one.name}={value}") for one, value in zip(simple.assignments, values, strict=True))
        words = (*names, *simple.words)
        for rule, said in self.allow:
            if said.kind != "any" and said.assigns and View(words).fit(said) == "yes":
                return Opinion("allow", rule.text, rule.layer, f"the rule {rule.text} allows it")
        return None

    def answered(self, text: str, simple: Simple) -> bool:
        """Return whether a person has answered a rule that asks with one that allows this command."""
        given = self._answers.get(text)
        return given is not None and (not simple.words or self._allows(simple, given) is not None)

    def _allows(self, simple: Simple, rules: list[tuple[Rule, Pattern]]) -> Opinion | None:
        if not rules:
            return None
        words = self.seen(simple)
        views = [View(words)]
        if words is not simple.words:  # a rule may also mean it as it is written
            views += [View(named(simple.words)), View(simple.plain), View(simple.words)]
        exact = _exact_only(words)
        for rule, said in rules:
            if exact and said.kind not in {"exact", "any"}:
                continue
            if views[0].fit(said) == "yes" or any(view.fit(said) == "yes" for view in views[1:]):
                return Opinion("allow", rule.text, rule.layer, f"the rule {rule.text} allows it")
        return None

    def seen(self, simple: Simple) -> Words:
        """Return a command as rules that allow see it."""
        return named(simple.plain or simple.words)


def _of(kind: Decision, rules: Sequence[Rule]) -> list[tuple[Rule, Pattern]]:
    return [
        (rule, said) for rule in rules if rule.kind == kind for said in patterns(rule.pattern, wide=kind != "allow")
    ]


def _fits(said: Pattern, views: list[View]) -> Fit:
    """Only a rule about every command speaks of one without words."""
    found: Fit = "yes" if said.kind == "any" else "no"
    for view in views:
        one = view.fit(said)
        if one == "yes":
            return one
        found = one if one == "maybe" else found
    return found


def _exact_only(words: Words) -> bool:
    name = words[0].value if words else None
    if name in EXACT:
        return True
    acts = _ACTS if name == "find" else _FD_ACTS if name in {"fd", "fdfind"} else frozenset[str]()
    return any((word.value or "").partition("=")[0] in acts for word in words[1:])
