"""Files that rules deny reading are hidden from searches: neither their names nor their lines are shown."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.runtime_fixtures import runtime
from tests.tools.builtin.harness import ToolHarness, value_of
from vaka.config.options import Permissions
from vaka.core.ports.tool import World
from vaka.policy.policy import LayeredPolicy
from vaka.policy.read_filter import is_readable, make_read_filter
from vaka.policy.rules import Layer
from vaka.runtime.options import policy_from_rules
from vaka.runtime.runtime import Runtime
from vaka.tools.builtin.search.glob import find_files
from vaka.tools.builtin.search.grep import GrepEngine, run_grep

pytestmark = pytest.mark.every_loop(exhaustive=True)

DENIED = ("Read(./secret/**)", "Read(.env)", "Read(**/*.pem)", "Read(//etc/shadow)")


def policy(root: Path, *deny: str, mode: str = "", ask: tuple[str, ...] = ()) -> LayeredPolicy:
    return LayeredPolicy([Layer(name="flag", mode=mode, deny=deny or DENIED, ask=ask)], cwd=str(root), home=str(root))


class PolicyHarness(ToolHarness):
    """A harness with rules about reading."""

    def runtime(self, **options: Any) -> Runtime:
        """Return a runtime whose world applies the rules."""
        rules = policy(self.root, mode="bypassPermissions")
        rt = runtime(self.store, permissions=Permissions(policy=rules), **options)
        rt.env.world = World(files=self.files, may_read=make_read_filter(rules), cwd=str(self.root))
        return rt


@pytest.fixture
def bench(tmp_path: Path) -> PolicyHarness:
    hidden = PolicyHarness(tmp_path)
    for path in ("open.txt", "secret/plan.txt", "secret/deep/er.txt", ".env", "sub/.env", "sub/key.pem", "sub/x.txt"):
        hidden.write(path, "needle\n")
    (hidden.root / "sub" / "alias.txt").symlink_to("../secret/plan.txt")
    return hidden


@pytest.fixture(params=["python", "ripgrep"])
def engine(request: pytest.FixtureRequest) -> GrepEngine:
    if request.param == "ripgrep" and shutil.which("rg") is None:
        pytest.skip("ripgrep is not installed: scripts/system.sh ripgrep")
    chosen: GrepEngine = request.param
    return chosen


@pytest.mark.parametrize("mode", ["files_with_matches", "count", "content"])
async def test_a_search_shows_no_unreadable_file(bench: PolicyHarness, engine: GrepEngine, mode: str) -> None:
    allowed = make_read_filter(policy(bench.root))
    result = await run_grep(bench.files, {"pattern": "needle", "output_mode": mode}, engine=engine, may_read=allowed)
    assert (result.value["total_files"], result.value["total_matches"]) == (2, 2)
    text = f"{result.text} {result.value}"
    assert "open.txt" in text
    assert "sub/x.txt" in text
    assert not any(word in text for word in ("secret", ".env", ".pem", "alias"))


@pytest.mark.parametrize("path", ["secret", "secret/plan.txt", "sub/alias.txt", ".env"])
async def test_a_search_that_starts_at_an_unreadable_file_finds_nothing(
    bench: PolicyHarness, engine: GrepEngine, path: str
) -> None:
    allowed = make_read_filter(policy(bench.root))
    result = await run_grep(bench.files, {"pattern": "needle", "path": path}, engine=engine, may_read=allowed)
    assert (result.text, result.value["total_files"]) == ("no matches", 0)


async def test_both_engines_hide_the_same_files(bench: PolicyHarness) -> None:
    if shutil.which("rg") is None:
        pytest.skip("ripgrep is not installed: scripts/system.sh ripgrep")
    allowed, arguments = make_read_filter(policy(bench.root)), {"pattern": "e", "output_mode": "content"}
    first = await run_grep(bench.files, arguments, engine="python", may_read=allowed)
    assert first == await run_grep(bench.files, arguments, engine="ripgrep", may_read=allowed)


async def test_names_of_unreadable_files_are_not_listed(bench: PolicyHarness) -> None:
    allowed = make_read_filter(policy(bench.root))
    text, data = await find_files(bench.files, "**/*", may_read=allowed)
    assert (sorted(data["files"]), data["total"]) == (["open.txt", "sub/x.txt"], 2)
    assert "secret" not in text
    assert (await find_files(bench.files, "secret/**", may_read=allowed))[1]["total"] == 0
    assert (await find_files(bench.files, "**/*"))[1]["total"] == 7, "without rules all of them are there"


async def test_the_tools_use_may_read_of_the_world(bench: PolicyHarness) -> None:
    results = await bench.run_calls(
        ("Glob", {"pattern": "**/*.txt"}),
        ("Grep", {"pattern": "needle"}),
        ("Read", {"file_path": "sub/kex.pem"}),
        ("Read", {"file_path": "opem.txt"}),
    )
    assert sorted(value_of(results[0])["files"]) == ["open.txt", "sub/x.txt"]
    assert value_of(results[1])["files"] == ["open.txt", "sub/x.txt"]
    assert "key.pem" not in results[2].text, "nor is one named that may have been meant"
    assert "did you mean 'open.txt'?" in results[3].text


async def test_other_roots_are_checked_by_their_absolute_paths(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "a.txt").write_text("needle")
    (other / "b.txt").write_text("needle")
    bench = ToolHarness(tmp_path, other)
    allowed = make_read_filter(policy(tmp_path, f"Read(/{other}/b.txt)"))
    assert (await find_files(bench.files, "*.txt", str(other), may_read=allowed))[1]["files"] == [f"{other}/a.txt"]


def test_rules_without_read_denials_add_no_check(tmp_path: Path) -> None:
    assert make_read_filter(policy(tmp_path, "Bash(rm:*)")) is None
    assert make_read_filter(policy_from_rules(deny=["Read"])) is None
    assert make_read_filter(policy(tmp_path, "Bash(rm:*)", ask=("Read(./a)",))) is None, "an ask is not a no"


def test_where_questions_are_denied_an_ask_rule_hides_the_file(tmp_path: Path) -> None:
    allowed = make_read_filter(policy(tmp_path, "Bash(rm:*)", mode="dontAsk", ask=("Read(./a)",)))
    assert allowed is not None
    assert (allowed(str(tmp_path / "a")), allowed(str(tmp_path / "b"))) == (False, True)


def test_a_relative_path_starts_at_the_working_folder(tmp_path: Path) -> None:
    rules = policy(tmp_path)
    assert is_readable(rules, "plan.txt")
    assert not is_readable(rules, "plan.txt", str(tmp_path / "secret"))
