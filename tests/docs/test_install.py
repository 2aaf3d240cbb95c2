"""What the documentation says about installing vaka agrees with pyproject.toml and with what is imported."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.unmeasured import without_coverage

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = {name: needs for name, needs in PROJECT["optional-dependencies"].items() if name not in ("all", "dev")}
MODULES = {"pyyaml": "yaml", "pyjwt": "jwt"}
"""The module of a package, where its name is another one."""
EXTRA = re.compile(r"(?:vaka|\.)\[([a-z,]+)\]")
SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def module_of(requirement: str) -> str:
    name = re.split(r"[>=<\[; ]", requirement)[0]
    return MODULES.get(name, name.replace("-", "_"))


def test_every_dependency_and_every_extra_is_imported_by_the_product() -> None:
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "src" / "vaka").rglob("*.py"))
    needs = [*PROJECT["dependencies"], *(need for extra in EXTRAS.values() for need in extra)]
    unused = [
        need
        for need in needs
        if not re.search(
            rf"^\s*(import|from) {module_of(need)}\b|import_module\(.{module_of(need)}", source, re.MULTILINE
        )
    ]
    assert unused == []


def test_every_extra_that_a_message_or_a_page_names_exists() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src" / "vaka").rglob("*.py")]
    named = {
        (str(page.relative_to(ROOT)), name)
        for page in pages
        for names in EXTRA.findall(page.read_text("utf-8"))
        for name in names.split(",")
    }
    assert {name for _, name in named} == set(EXTRAS)
    assert all(f"| `{name}` |" in README for name in EXTRAS)
    assert set(EXTRA.findall(PROJECT["optional-dependencies"]["all"][0])[0].split(",")) == set(EXTRAS)


def test_a_server_needs_no_extra_but_its_own() -> None:
    mine = {module_of(need) for need in EXTRAS["server"]}
    absent = {module_of(need) for needs in EXTRAS.values() for need in needs} - mine
    program = f"""import sys
sys.modules.update(dict.fromkeys({sorted(absent)}))
from vaka.cli.commands import serve
from vaka.server.doors import doors_of
from vaka.config.server_tables import FEATURE_NAMES
print(len(list(doors_of(frozenset(FEATURE_NAMES)))) >= len(FEATURE_NAMES) - 1)"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=without_coverage(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout == "True\n", done.stderr


def test_the_shell_block_of_the_readme_runs(tmp_path: Path) -> None:
    [block] = [block for block in SHELL_BLOCK.findall(README) if "answers.jsonl" in block]
    env = without_coverage() | {
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "XDG_CONFIG_HOME": str(tmp_path / "conf"),
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
    }
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        ["bash", "-e", "-c", block],
        cwd=work,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, done.stdout.count("Yes, lightly.")) == (0, 3), done.stderr
