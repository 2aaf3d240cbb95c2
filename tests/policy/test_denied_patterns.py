"""The patterns that rules deny, as the sandbox of commands receives them."""

from vaka.policy.paths import split_path
from vaka.policy.policy import LayeredPolicy
from vaka.policy.read_filter import list_denied_patterns
from vaka.policy.rules import Layer


def denied_paths(policy: LayeredPolicy, *, edits: bool) -> set[str]:
    paths = ("/w/.env", "/w/conf/a.yml", "/w/asked", "/w/notes", "/w/free")
    patterns = list_denied_patterns(policy, edits=edits)
    return {path for path in paths if any(pattern.covers(split_path(path)) for pattern in patterns)}


def policy_in_mode(mode: str) -> LayeredPolicy:
    deny = ("Read(.env)", "Edit(conf/**)", "Write(notes)", "Bash(rm:*)", "Read")
    layer = Layer(name="user", allow=("Edit(free)",), deny=deny, ask=("Read(asked)",), mode=mode)
    return LayeredPolicy([layer], cwd="/w", home="/home")


def test_a_denied_read_denies_a_change_and_not_the_reverse() -> None:
    policy = policy_in_mode("default")
    assert denied_paths(policy, edits=False) == {"/w/.env"}
    assert denied_paths(policy, edits=True) == {"/w/.env", "/w/conf/a.yml", "/w/notes"}


def test_a_question_is_a_denial_where_no_question_is_asked() -> None:
    assert denied_paths(policy_in_mode("dontAsk"), edits=False) == {"/w/.env", "/w/asked"}
