"""Files outside of the working directories: commands read them under the decision on the tool Read."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from vaka.policy.decision import MODES
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.policy.tool_targets import spec_of

READING = (
    "cat P",
    "head -3 P",
    "grep x P",
    "sort P",
    "cat < P",
    "cat P | head",
    "x=P; cat $x",
    "base64 P",
    "diff P P",
    "cat $(echo P)",
    "sed -n 1p P",
    "git diff --no-index P P",
    "{ cat P; }",
    "jq . P",
)


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for name in ("work/in.txt", "work/.env", "other/out.txt", "other/.env", "other/sub/.env"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return tmp_path


def decide(
    folders: Path,
    tool: str,
    mode: str = "default",
    rules: Mapping[str, tuple[str, ...]] | None = None,
    **arguments: str,
) -> str:
    layer = Layer(name="user", mode=mode, **(rules or {}))  # type: ignore[arg-type]  # rules have the names of its fields
    policy = LayeredPolicy([layer], cwd=str(folders / "work"), home=str(folders / "home"))
    return policy.decide(spec_of(tool), arguments).decision


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", ["in.txt", "../other/out.txt", "/other/out.txt"])
def test_a_command_reads_a_file_under_the_decision_on_the_tool_read(folders: Path, mode: str, path: str) -> None:
    path = path.replace("/other", f"{folders}/other") if path.startswith("/") else path
    expected = decide(folders, "Read", mode, file_path=path)
    commands = [command.replace("P", path) for command in READING if path != "in.txt" or "git" not in command]
    found = {command: decide(folders, "Bash", mode, command=command) for command in commands}
    assert {command: one for command, one in found.items() if one != expected} == {}


def test_a_rule_that_allows_reading_elsewhere_allows_it_to_commands(folders: Path) -> None:
    for allow in (f"Read(/{folders}/other/**)", "Read", f"Edit(/{folders}/other/**)", "Bash(cat:*)", "Bash"):
        assert decide(folders, "Bash", rules={"allow": (allow,)}, command="cat ../other/out.txt") == "allow", allow
    assert decide(folders, "Bash", rules={"allow": ("Read(./**)",)}, command="cat ../other/out.txt") == "ask"


def test_names_elsewhere_are_listed_in_each_mode_but_the_strictest(folders: Path) -> None:
    for command in ("ls ../other", "stat ../other/out.txt", "find ../other -name x", "test -f ../other/out.txt"):
        assert decide(folders, "Bash", command=command) == "allow", command


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rule", ["Read(**/.env)", "Read(.env)"])
def test_a_pattern_at_any_depth_denies_a_file_outside_of_the_working_folder(
    folders: Path, rule: str, mode: str
) -> None:
    rules = {"deny": (rule,), "allow": ("Bash", "Read", "Grep", "Glob")}
    other = f"{folders}/other"
    assert decide(folders, "Read", mode, rules, file_path=f"{other}/.env") == "deny"
    assert decide(folders, "Grep", mode, rules, path=f"{other}/.env", pattern="x") == "deny"
    assert decide(folders, "Glob", mode, rules, path=f"{other}/.env", pattern="*") == "deny"
    for command in (
        f"cat {other}/.env",
        "cat ../other/.env",
        "cat ../oth*/.env",
        "cat ../other/.e*",
        "cat ../other/sub/.env",
        "cd ../other && cat .env",
        "cd ../other; cat .e*",
        "cat < ../other/.env",
        "rm ../other/.env",
        "for f in ../other/.e*; do cat $f; done",
        "git -C ../other diff --no-index .env /dev/null",
    ):
        assert decide(folders, "Bash", mode, rules, command=command) == "deny", command
    for command in ("grep -r x ../other", "cp -r ../other /tmp/q", "tar c ../other", "find ../other | xargs cat"):
        assert decide(folders, "Bash", mode, rules, command=command) != "allow", command
    assert decide(folders, "Bash", mode, rules, command="cat ../other/out.txt") == "allow"


def test_a_pattern_of_the_working_folder_does_not_bind_files_elsewhere(folders: Path) -> None:
    rules = {"deny": ("Read(./**/.env)",), "allow": ("Bash",)}
    assert decide(folders, "Bash", rules=rules, command="cat ../other/.env") == "allow"
    assert decide(folders, "Bash", rules=rules, command="cat .env") == "deny"
