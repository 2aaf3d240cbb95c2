"""The numbers that say how simple the tree is."""

import subprocess
from pathlib import Path

import pytest

from scripts.house import ROOT, WRITING_TOOL, Row, Tree, format_rows, list_text_rows

FIRST = '''"""Return the name of what is new, and that of what is old."""
import vaka.core.session.log
from vaka.core.loop.steps import step
WRITING = "NotebookEdit"
A = (1,
     2)  # fmt: skip
B, C, D = 1, 2, 3
'''


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A repository with a loop of two modules, a port, a log and a migration."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    files = {
        "core/loop/turn.py": FIRST,
        "core/loop/steps.py": "from vaka.core.ports.model import Model\nfrom vaka.core.session.log import Log\n",
        "core/ports/model.py": "class Model: ...\n",
        "core/session/log.py": "class Log: ...\n",
        "stores/first.sql": "create table a (b);\n",
    }
    for name, text in files.items():
        path = tmp_path / "src" / "vaka" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "README.md").write_text("How to write a fragment.\n")
    (tmp_path / "changes" / "one.feature.md").write_text("One.\n")
    return Tree(tmp_path)


def test_a_turn_runs_through_the_modules_that_it_loads_without_ports(tree: Tree) -> None:
    found = tree.find_imported("vaka.core.loop.turn")
    assert found == {"vaka.core.loop.turn", "vaka.core.loop.steps", "vaka.core.session.log"}
    assert tree.count_lines(found) == 10


def test_the_numbers_follow_from_the_files(tree: Tree) -> None:
    values = {row.name: row.value for row in list_text_rows(tree)}
    assert values["files of a tool that writes"] == 1
    assert values["SQL migrations"] == 1
    assert values["news fragments"] == 1
    assert values["# fmt: skip"] == 1
    assert values["packed assignments"] == 1
    assert values["headless clauses"] == 1


def test_a_file_belongs_to_a_flag_if_it_declares_it_or_passes_it_on_but_not_if_it_reads_it(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "src" / "vaka").mkdir(parents=True)
    files = {
        "declares": "class Group:\n    hosts: int = 0\n",
        "takes": "def connect(hosts: int) -> None: ...\n",
        "gives": "Group(hosts=1)\n",
        "lists": 'KEYS = {"hosts": 1}\n',
        "reads": "print(group.hosts)\n",
    }
    for name, text in files.items():
        (tmp_path / "src" / "vaka" / f"{name}.py").write_text(text)
    assert Tree(tmp_path).count_passing("hosts") == 4


def test_a_tool_that_writes_files_is_a_module_a_description_and_a_line_in_the_list_of_tools() -> None:
    assert Tree(ROOT).find_tool_files(WRITING_TOOL) == [
        "src/vaka/tools/builtin/__init__.py",
        "src/vaka/tools/builtin/files/notebook.py",
        "src/vaka/tools/builtin/files/notebook_edit.md",
    ]


def test_the_table_has_the_value_of_each_row_beside_the_old_one_and_the_goal() -> None:
    lines = format_rows(
        [Row("files", "12", "3", 7, "files of src"), Row("lines", "9000", "400", 11, "lines")]
    ).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["files", "12", "7", "3", "files", "of", "src"],
        ["lines", "9000", "11", "400", "lines"],
    ]
