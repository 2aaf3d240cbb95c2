"""Redirections of groups, and programs that only read protected files."""

from tests.policy.tables import each_row
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.policy.tool_targets import spec_of


def decide_command(command: str, **lists: tuple[str, ...]) -> str:
    policy = LayeredPolicy([Layer(name="user", **lists)], cwd="/site", home="/home/kim")  # type: ignore[arg-type]  # lists of rules
    return policy.decide(spec_of("Bash"), {"command": command}).decision


@each_row(["(make; make test) > log 2>&1", "{ echo a; echo b; } > f", "> f", "for i in 1; do make; done >> log"])
def test_a_rule_for_every_command_covers_the_redirections_of_groups(command: str) -> None:
    assert decide_command(command, allow=("Bash",)) == "allow"
    assert decide_command(command, allow=("Bash(make:*)", "Bash(echo:*)")) == "ask"
    assert decide_command(command, allow=("Bash",), deny=("Edit(**)",)) == "deny"


@each_row(["source ~/.bashrc; make", "sha256sum vaka.toml", "strings .git/index", ". .envrc"])
def test_a_program_that_only_reads_may_use_a_protected_file(command: str) -> None:
    assert decide_command(command, allow=("Bash",)) == "allow"
    assert decide_command(command, allow=("Bash",), deny=("Read(**)", "Read(~/**)")) == "deny"


@each_row(["yq -i .a vaka.toml", "iconv -o .envrc x", "anything ~/.bashrc", "cp x .git/config"])
def test_a_program_that_may_write_to_a_protected_file_is_asked_about(command: str) -> None:
    assert decide_command(command, allow=("Bash",)) == "ask"
