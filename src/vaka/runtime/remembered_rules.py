"""Rules that approvals have granted to the owners of sessions, stored in a namespace and not in settings files."""

import hashlib
from collections.abc import Sequence
from typing import Literal, TypeAlias, cast

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.policy import Policy, SessionPolicy
from vaka.core.ports.store import Store
from vaka.core.ports.tool import Tool
from vaka.core.ports.values import KeyValueStore
from vaka.core.types.ending import Outcome
from vaka.core.types.errors import Corrupt, InvalidInput, StoreError
from vaka.core.types.ids import SessionId
from vaka.core.types.message import ToolCall
from vaka.core.types.tool import Ask, Grant
from vaka.core.types.traits import find_traits

MAX_RULES = 500
"""The number of rules that one owner may have."""
_PREFIX = "permissions/rules/"

RuleScope: TypeAlias = Literal["project", "user"]


class RememberedRule(msgspec.Struct, frozen=True, kw_only=True):
    """Rules, one per line, that allow calls in all sessions of one owner."""

    id: str
    rule: str
    scope: RuleScope = "user"
    """``project``: only where tools work in the folder ``cwd``."""
    cwd: str = ""
    approval: str = ""
    by: str = ""
    """The caller that has granted it."""
    created: str = ""


class OwnerRules:
    """The stored rules of owners. Each look-up reads the store, so that a rule counts at once in all processes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list(self, owner: str) -> Sequence[RememberedRule]:
        """Return the rules of an owner, the oldest first."""
        return _parse_rules(owner, await self._store.values.get(_key_of(owner)))

    async def add(self, owner: str, rule: RememberedRule) -> bool:
        """Store a rule of an owner; return whether it is new. Raises ``InvalidInput`` when the owner has too many."""
        if not owner:
            raise InvalidInput("the session has no owner that a rule could belong to; approve for the session instead")
        while True:
            stored = await self._store.values.get(_key_of(owner))
            rules = _parse_rules(owner, stored)
            if any((known.rule, known.scope, known.cwd) == (rule.rule, rule.scope, rule.cwd) for known in rules):
                return False
            if len(rules) >= MAX_RULES:
                raise InvalidInput(f"{owner!r} has {MAX_RULES} remembered rules; remove one of them first")
            added = msgspec.to_builtins([*rules, rule])
            if await self._store.values.compare_and_set(_key_of(owner), stored, added):
                return True

    async def remove(self, owner: str, id: str) -> bool:
        """Remove a rule of an owner; return whether there was one."""
        while True:
            stored = await self._store.values.get(_key_of(owner))
            rules = _parse_rules(owner, stored)
            kept = [rule for rule in rules if rule.id != id]
            if len(kept) == len(rules):
                return False
            if await self._store.values.compare_and_set(_key_of(owner), stored, msgspec.to_builtins(kept) or None):
                return True

    async def find_owner(self, session: SessionId) -> str:
        """Return the owner of a session, ``""`` if it has none."""
        info = await self._store.sessions.find(session)
        return info.owner if info is not None else ""


class RememberedRules(OwnerRules, Middleware):
    """Applies the rules of owners to the calls that a person would be asked about; no other call costs a look-up."""

    inherited = ("before_tool",)

    @property
    def name(self) -> str:
        return "remembered rules"

    async def before_tool(self, turn: Turn, call: ToolCall) -> ToolCall:
        """Give the policy the rules of the session's owner, for a call that a person would be asked about."""
        tool, policy = turn.tools.get(call.name), turn.env.policy
        if tool is None or not hasattr(policy, "with_grants"):
            return call
        verdict = _policy_of_call(turn, tool).judge(call, tool.spec, turn.path)
        if isinstance(verdict, Ask):
            turn.env.owner_grants[turn.session] = await self._find_grants(turn.session, getattr(policy, "cwd", ""))
        return call

    async def after_agent(self, turn: Turn, outcome: Outcome) -> Outcome:
        if not turn.path:
            turn.env.owner_grants.pop(turn.session, None)
        return outcome

    async def _find_grants(self, session: SessionId, cwd: str) -> tuple[Grant, ...]:
        try:
            owner = await self.find_owner(session)
            rules = await self.list(owner) if owner else ()
        except StoreError:
            return ()  # a person is asked
        return tuple(Grant(rule=each.rule) for each in rules if each.scope == "user" or each.cwd == cwd)


def _policy_of_call(turn: Turn, tool: Tool) -> Policy:
    policy = turn.env.policy
    if hasattr(policy, "for_call"):
        policy = cast("SessionPolicy", policy).for_call(tool.spec, turn.path, turn.get_state, find_traits(tool, ""))
    return policy


async def erase_rules(values: KeyValueStore, owner: str, *, dry_run: bool) -> int:
    """Remove all rules of an owner; return their number. With ``dry_run`` only count them."""
    count = len(_parse_rules(owner, await values.get(_key_of(owner))))
    if count and not dry_run:
        await values.put(_key_of(owner), None)
    return count


def _key_of(owner: str) -> str:
    """Return the name of the value with the rules of an owner, whose id may have any character and length."""
    return _PREFIX + hashlib.sha256(owner.encode("utf-8", "surrogatepass")).hexdigest()


def _parse_rules(owner: str, value: object) -> Sequence[RememberedRule]:
    try:
        return msgspec.convert(value or [], list[RememberedRule])
    except msgspec.ValidationError as error:
        raise Corrupt(f"the stored rules of {owner!r} are damaged: {error}") from error
