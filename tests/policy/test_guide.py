"""The guide to permissions agrees with the rules."""

import re
from pathlib import Path

from tests.cli.shell import Shell
from vaka.policy.decision import MODE_DECISIONS, MODES
from vaka.policy.paths import PathAnchors
from vaka.policy.rules import Layer, read_rule
from vaka.project.claude_keys import check_document
from vaka.project.claude_settings import parse_document, parse_permission_layer

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "permissions.md").read_text(encoding="utf-8")


def table_rows(head: str) -> list[list[str]]:
    """Return the rows of the table with this header."""
    table = GUIDE[GUIDE.index(head) :].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_every_rule_of_the_guide_is_valid() -> None:
    place = PathAnchors(cwd="/site", home="/home", folder="/site")
    written = [rule for row in table_rows("| rule |") for rule in re.findall(r"`([^`]+)`", row[0])]
    assert len(written) > 10
    for rule in written:
        read_rule(rule, "allow", Layer(name="user"), place)
    for pattern in [pattern for row in table_rows("| begins with |") for pattern in re.findall(r"`([^`]+)`", row[0])]:
        read_rule(f"Read({pattern})", "allow", Layer(name="user"), place)


def test_the_table_of_modes_in_the_guide_is_the_one_in_force() -> None:
    rows = table_rows("| the call |")
    assert [f"`{mode}`" for mode in MODES] == [
        cell.strip() for cell in GUIDE[GUIDE.index("| the call |") :].splitlines()[0].strip("|").split("|")[1:]
    ]
    acts = list(MODE_DECISIONS["default"])
    assert [row[1:] for row in rows] == [[MODE_DECISIONS[mode][act] for mode in MODE_DECISIONS] for act in acts]


def test_the_settings_in_the_guide_are_valid() -> None:
    (document,) = re.findall(r"^```json\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    settings = parse_document(document, "guide")
    layer = parse_permission_layer(settings, "user")
    assert (check_document(settings), layer.mode, layer.no_bypass, len(layer.deny)) == ([], "acceptEdits", True, 3)


def test_the_commands_in_the_guide_print_what_it_shows(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (block,) = re.findall(r"^```console\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        wanted = ".*".join(re.escape(piece) for piece in printed.split("…"))
        done = shell.bash(f"({command}) 2>&1", fork=True)
        assert re.fullmatch(wanted, done.out, re.DOTALL), f"{command}\n{done.out}"
