"""The verdict on a command: every simple command on its own, and the strictest wins."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from vaka.core.types.tool import Ask, Verdict
from vaka.policy.bash import guard, places
from vaka.policy.bash.places import Folders, Look
from vaka.policy.bash.profile import reads, shell
from vaka.policy.bash.profile.options import Refused
from vaka.policy.bash.rules import Rules
from vaka.policy.bash.variables import safe, unsafe
from vaka.policy.bash.verdicts import Judgement, Opinion, Rule, strictest
from vaka.policy.bash.words import Redirection, Script, Simple, Unreadable, Word, Words, literal

PROFILE = "read-only"
"""The layer of what the read-only profile allows."""
SYNTAX = "syntax"
"""The layer of what no rule can judge: it is asked about, or there is nothing to judge."""

_MOST_LOOKS = 20_000
_UNMATCHED = Ask("no rule allows it", "default", "mode")
_NOTHING = Opinion("allow", "", SYNTAX, "it runs no command")


def judge(
    script: Script | Unreadable,
    rules: Sequence[Rule] | Rules = (),
    *,
    profile: bool = True,
    unmatched: Verdict = _UNMATCHED,
    may_read: Look | None = None,
    may_write: Look | None = None,
    inside: Callable[[str], bool] | None = None,
) -> Judgement:
    """Return what may become of a command that was read. Pure: it runs nothing and asks nobody.

    ``profile``: whether the read-only profile is on. ``unmatched``: what the mode says where nothing else speaks.
    ``may_read`` and ``may_write``: what the rules for files say of a path; without ``may_write`` no redirection to a
    file is allowed. ``inside``: whether a folder belongs to the workspace, for ``cd``.
    """
    held = rules if isinstance(rules, Rules) else Rules(rules)
    if isinstance(script, Unreadable):
        return _unreadable(script, held)
    court = _Court(held, Opinion.of(unmatched), may_read, may_write)
    court.profile, court.inside, court.start = profile, inside, script.start
    court.given, court.values = script.given, places.values(script.given)
    doubts = list(script.doubts)
    if len(court.values) * len(script.commands) > _MOST_LOOKS:
        court.given, court.values = (), ()
        doubts.append("it sets more variables than can be followed")
    opinions = [court.opinion(simple) for simple in script.commands]
    whole = [Opinion("ask", "", SYNTAX, doubt) for doubt in doubts] + [*held.forbids_whole(script.text)]
    if script.bomb:
        whole.append(Opinion("deny", "", guard.GUARD, "it starts itself again and again without end"))
    found = strictest([*opinions, *whole] or [_NOTHING])
    named = [opinion.subcommand(simple) for simple, opinion in zip(script.commands, opinions, strict=True)]
    return Judgement(found.decision, found.rule, found.layer, found.reason, tuple(named))


def _unreadable(script: Unreadable, rules: Rules) -> Judgement:
    """A text without a sure reading is asked about, or denied when a rule may mean it."""
    asked = Opinion("ask", "", SYNTAX, f"it cannot be judged: {script.reason}")
    for said in rules.forbids_whole(script.text):
        if said.decision == "deny":
            return Judgement(said.decision, said.rule, said.layer, said.reason)
    for simple in script.commands:
        denied = rules.forbids(simple)
        if denied is not None and denied.decision == "deny":
            named = denied.subcommand(simple)
            return Judgement(denied.decision, denied.rule, denied.layer, denied.reason, (named,))
    return Judgement(asked.decision, asked.rule, asked.layer, asked.reason)


class _Court:
    """Judges the simple commands of one script, in order."""

    profile = True
    inside: Callable[[str], bool] | None = None
    start = ""
    given: Words = ()
    """What variables are set to, and the paths that this may be."""
    values: Sequence[str] = ()

    def __init__(self, rules: Rules, unmatched: Opinion, may_read: Look | None, may_write: Look | None) -> None:
        self.rules = rules
        self.unmatched = unmatched
        self.looks = {"read": may_read, "write": may_write}
        self.seen: dict[tuple[str, str], Opinion] = {}
        self.folders = Folders()

    def opinion(self, simple: Simple) -> Opinion:
        """Return what is to be done with one command."""
        forbidden = self.rules.forbids(simple)
        if forbidden is not None and forbidden.decision == "deny":
            found = forbidden
        else:
            found = self._unforbidden(simple, forbidden)
        if places.moves(simple.words):
            operands = [word for word in simple.words[1:] if word.value not in {"-P", "-L", "--"}]
            goes = operands[0] if operands else literal("~")
            self.folders.go(goes if simple.name == "cd" else None)
        return found

    def _unforbidden(self, simple: Simple, asked: Opinion | None) -> Opinion:
        permitted, named = self._permitted(simple)
        opinions = [one for one in (asked, self._alarm(simple), _doubt(simple), permitted) if one is not None]
        if permitted is None:
            permitted = self.unmatched
            opinions.append(self.unmatched)
        opinions += self._files(simple, permitted, named)
        return strictest(opinions)

    def _alarm(self, simple: Simple) -> Opinion | None:
        known = self.folders.known
        if known is not None and self.start:
            known = (*known, *(places.join(self.start, folder) for folder in known))
        found = guard.alarm(simple, known)
        return Opinion(found.decision, "", guard.GUARD, found.reason) if found is not None else None

    # ---------------------------------------------------------------------------------------- what allows

    def _permitted(self, simple: Simple) -> tuple[Opinion | None, list[Word] | None]:
        """Return what allows a command, if anything, and the words it reads as files, if those are known."""
        if not simple.words:
            return self.rules.any or _NOTHING, []
        named: list[Word] | None = None
        refusal = ""
        try:
            named = self._reads(simple)
        except Refused as error:
            refusal = str(error)
        if self.rules.any is not None:
            return self.rules.any, named
        if bad := _bad_assignment(simple):
            return self.rules.allows_assigned(simple) or self._unmatched_because(f"{bad} is given to it"), named
        if (allowed := self.rules.allows(simple) or self.rules.allows_assigned(simple)) is not None:
            return allowed, named
        if self.profile and named is not None:
            return self._profile([*named, *places.read_from(simple)]), named
        if simple.function:
            return _NOTHING, []
        return (self._unmatched_because(refusal) if refusal and self.profile else None), named

    def _unmatched_because(self, reason: str) -> Opinion:
        found = self.unmatched
        return Opinion(found.decision, found.rule, found.layer, reason if found.decision != "allow" else found.reason)

    def _reads(self, simple: Simple) -> list[Word] | None:
        if simple.name == "cd":
            shell.folder(simple.plain[1:], self._inside)
            return []
        words = self.rules.seen(simple)
        found = reads(simple, words)
        for option, folder in pairwise(words if words and words[0].value == "git" else ()):
            if option.value == "-C" and not self._inside(folder.value or ""):
                raise Refused(f"git -C {folder.source} may lead to a repository whose settings run programs")
        return found

    def _inside(self, path: str) -> bool:
        last = self.folders.known[-1] if self.folders.known is not None else None
        if last is None:
            return False
        path = places.join(last, path)
        return self.inside(path) if self.inside is not None else shell.below(path)

    def _profile(self, named: list[Word]) -> Opinion:
        held = [literal(text) for word in named for text in places.filled(word, self.values)]
        if shown := places.secret([*named, *held, *(self.given if held else ())]):
            return self._unmatched_because(f"{shown} is a place where keys lie")
        return Opinion("allow", PROFILE, PROFILE, "it only reads")

    # ---------------------------------------------------------------------------------------- files

    def _files(self, simple: Simple, permitted: Opinion, named: list[Word] | None) -> Iterable[Opinion]:
        """Yield what the rules for files say of a command's operands and redirections."""
        everything = permitted is self.rules.any
        by_profile = permitted.layer == PROFILE
        if named is not None:
            for word in named:
                yield from self._look("read", word.path, strict=by_profile)
                for path in (*places.within(word.path or ""), *places.likely(word), *places.filled(word, self.values)):
                    yield from self._look("read", path)
        else:
            yield from self._operands(simple)
        for redirection in simple.redirections:
            yield from self._redirection(redirection, everything=everything)

    def _operands(self, simple: Simple) -> Iterable[Opinion]:
        for path, writes in places.operands(simple, self.values):
            yield from self._look("read", path)
            for found in self._look("write", path) if writes is not None else ():
                if writes or found.decision == "ask":
                    yield found
                else:
                    yield Opinion("ask", found.rule, found.layer, f"it may write to {path}: {found.reason}")

    def _redirection(self, redirection: Redirection, *, everything: bool) -> Iterable[Opinion]:
        target = redirection.target
        if places.is_network(redirection):
            if not everything:
                yield Opinion("ask", "", SYNTAX, f"it opens a connection to {target.source}")
        elif not places.is_free(redirection):
            kind = "write" if places.writes(redirection) else "read"
            yield from self._look(kind, target.path, strict=not everything)
            for path in (*places.likely(target), *places.filled(target, self.values)):
                yield from self._look(kind, path)
            if kind == "write" and not everything and (target.path is None or self.looks["write"] is None):
                yield Opinion("ask", "", SYNTAX, f"it writes to {target.source}")

    def _look(self, kind: str, path: str | None, *, strict: bool = False) -> Iterable[Opinion]:
        """Yield what the rules for files have against a path; what only the mode says counts when ``strict``."""
        if self.looks[kind] is None or path is None:
            return
        possible = self.folders.paths(path)
        if possible is None:
            if strict:
                yield Opinion("ask", "", SYNTAX, f"where {path} lies is not known after the last cd")
            return
        for one in possible:
            found = self._file(kind, one)
            if found.decision != "allow" and (strict or found.layer not in {"mode", ""}):
                yield found

    def _file(self, kind: str, path: str) -> Opinion:
        known = self.seen.get((kind, path))
        if known is None:
            look = self.looks[kind]
            known = Opinion.of(look(path)) if look is not None else _NOTHING
            self.seen[kind, path] = known
        return known


def _doubt(simple: Simple) -> Opinion | None:
    """Return why no rule may allow a command, if there is such a reason."""
    reason = simple.doubt
    if _unknown(simple.words):
        reason = f"which command {simple.words[0].source} is cannot be known beforehand"
    elif any(_unknown(words) for words in simple.wrapped):
        reason = "which command it runs in turn cannot be known beforehand"
    else:
        for one in simple.assignments:
            if unsafe(one.name) and not (one.name == "IFS" and simple.name == "read"):
                reason = f"it sets {one.name}, which decides what runs"
    return Opinion("ask", "", SYNTAX, reason) if reason else None


def _unknown(words: Words) -> bool:
    return bool(words) and (words[0].value is None or words[0].braced)


def _bad_assignment(simple: Simple) -> str:
    """Return the first variable before a command that is not known to be harmless."""
    if simple.name in shell.DECLARATIONS:
        return ""
    return next(
        (
            one.name
            for one in simple.assignments
            if not safe(one.name) and not (one.name == "IFS" and simple.name == "read")
        ),
        "",
    )
