"""The guard by the start folder of a command, and for hidden forms of removal."""

from tests.policy.tables import each_row
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.policy.tool_targets import spec_of


def decide_command(command: str, cwd: str = "/srv/site/app", mode: str = "bypassPermissions") -> str:
    policy = LayeredPolicy([Layer(name="user", mode=mode, allow=("Bash",))], cwd=cwd, home="/home/kim")
    return policy.decide(spec_of("Bash"), {"command": command}).decision


@each_row(
    [
        ("rm -rf ../../..", "/srv/site/app"), ("rm -rf ../../../etc", "/srv/site/app"),
        ("rm -rf ../../../*", "/srv/site/app"), ("cd ../.. && rm -rf ../usr", "/srv/site/app"),
        ("rm -rf *", "/home/kim"), ("rm -rf .", "/etc"), ("find . -delete", "/"), ("chmod -R 777 .", "/usr"),
        ("find -- / -delete", "/srv/site"), ("find / -ok rm {} \\;", "/srv/site"),
        ("find / -exec sh -c 'rm \"$1\"' _ {} \\;", "/srv/site"), ("dd if=x of=//dev/sda", "/srv/site"),
        ("cat x > //dev/sda", "/srv/site"), ("mv x /dev/sda", "/srv/site"), ("trash /", "/srv/site"),
    ]
)  # fmt: skip
def test_removing_a_system_folder_by_a_relative_path_is_denied(command: str, cwd: str) -> None:
    assert decide_command(command, cwd) == "deny"
    assert decide_command(command, cwd, "default") == "deny"


@each_row(["rm -rf ..", "rm -rf ../", "chmod -R 777 .."])
def test_removing_a_parent_folder_is_asked_about(command: str) -> None:
    assert decide_command(command) == "ask"


@each_row(
    [
        "rm -rf *", "rm -rf .", "rm -rf ../other", "rm -rf build/*", "cd build && rm -rf *", "find . -name x -delete",
        "find . -exec sh -c 'echo \"$1\"' _ {} \\;", "find src -exec rm {} +", "mv a b", "trash x", "chmod -R 755 dist",
        "dd if=/dev/sda of=image", "cat x > /dev/null",
    ]
)  # fmt: skip
def test_removing_files_below_the_folder_is_allowed(command: str) -> None:
    assert decide_command(command) == "allow"
