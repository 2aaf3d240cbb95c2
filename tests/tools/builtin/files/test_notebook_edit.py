"""NotebookEdit changes one cell by its id; the rest of the notebook stays unchanged."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tools.builtin.harness import ToolHarness, value_of

CELLS: list[dict[str, Any]] = [
    {"cell_type": "markdown", "id": "intro", "metadata": {}, "source": ["# Títle\n", "words"]},
    {
        "cell_type": "code",
        "id": "sum",
        "metadata": {"x": 1},
        "source": ["1 + 1"],
        "execution_count": 3,
        "outputs": [{"output_type": "stream", "text": "2"}],
    },
]


def notebook(cells: list[dict[str, Any]], minor: int = 5) -> dict[str, Any]:
    return {"cells": cells, "metadata": {"kernelspec": {"name": "python3"}}, "nbformat": 4, "nbformat_minor": minor}


@pytest.fixture
def bench(tmp_path: Path) -> ToolHarness:
    bench = ToolHarness(tmp_path)
    bench.write("a.ipynb", json.dumps(notebook(CELLS), indent=1, ensure_ascii=False) + "\n")
    return bench


async def edit(bench: ToolHarness, **arguments: Any) -> Any:
    _, edited = await bench.run_calls(
        ("Read", {"file_path": "a.ipynb"}), ("NotebookEdit", {"notebook_path": "a.ipynb", **arguments})
    )
    return edited


def cells(bench: ToolHarness) -> Any:
    return json.loads((bench.root / "a.ipynb").read_text())["cells"]


async def test_a_replaced_cell_loses_its_outputs(bench: ToolHarness) -> None:
    edited = await edit(bench, cell_id="sum", new_source="2 +\n2")
    assert edited.text == "replaced cell sum of a.ipynb\n@@ -1,1 +1,2 @@\n-1 + 1\n+2 +\n+2"
    assert cells(bench) == [CELLS[0], CELLS[1] | {"source": ["2 +\n", "2"], "outputs": [], "execution_count": None}]
    text = (bench.root / "a.ipynb").read_text()
    assert text.startswith('{\n "cells": [\n  {\n   "cell_type"')
    assert text.endswith("}\n")
    assert "Títle" in text


async def test_the_type_of_a_cell_can_be_changed(bench: ToolHarness) -> None:
    await edit(bench, cell_id="sum", new_source="words", cell_type="markdown")
    assert cells(bench)[1] == {"cell_type": "markdown", "id": "sum", "metadata": {"x": 1}, "source": ["words"]}


async def test_cells_are_inserted_after_another_or_at_the_top(bench: ToolHarness) -> None:
    first = value_of(await edit(bench, edit_mode="insert", cell_type="code", new_source="x", cell_id="intro"))
    await edit(bench, edit_mode="insert", cell_type="markdown", new_source="y")
    ids = [cell["id"] for cell in cells(bench)]
    assert ids[1:] == ["intro", first["cell_id"], "sum"]
    assert cells(bench)[2] == {
        "cell_type": "code",
        "metadata": {},
        "id": first["cell_id"],
        "source": ["x"],
        "outputs": [],
        "execution_count": None,
    }


async def test_a_cell_is_deleted(bench: ToolHarness) -> None:
    assert (await edit(bench, cell_id="intro", edit_mode="delete")).text.startswith("deleted cell intro of a.ipynb")
    assert cells(bench) == [CELLS[1]]


async def test_cells_without_ids_are_named_by_their_index(bench: ToolHarness) -> None:
    old = [{key: item for key, item in cell.items() if key != "id"} for cell in CELLS]
    bench.write("a.ipynb", json.dumps(notebook(old, minor=2)))
    await edit(bench, cell_id="cell-1", new_source="3")
    await edit(bench, edit_mode="insert", cell_type="code", new_source="4", cell_id="cell-1")
    assert [(cell.get("id"), cell["source"]) for cell in cells(bench)] == [
        (None, ["# Títle\n", "words"]),
        (None, ["3"]),
        (None, ["4"]),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cell_id": "nope", "new_source": "x"}, "there is no cell 'nope'; there are intro, sum"),
        ({"new_source": "x"}, "cell_id is missing"),
        ({"edit_mode": "insert", "new_source": "x"}, "cell_type is missing"),
        ({"edit_mode": "explode"}, "edit_mode"),
    ],
)
async def test_invalid_arguments_are_a_clear_error(bench: ToolHarness, arguments: dict[str, Any], message: str) -> None:
    before = (bench.root / "a.ipynb").read_bytes()
    edited = await edit(bench, **arguments)
    assert edited.failed
    assert message in edited.text
    assert (bench.root / "a.ipynb").read_bytes() == before


async def test_a_notebook_must_have_been_read_and_be_valid(bench: ToolHarness) -> None:
    unread = await bench.call("NotebookEdit", notebook_path="a.ipynb", cell_id="sum", new_source="x")
    assert "has not been read" in unread.text
    bench.write("a.ipynb", "no notebook")
    assert "'a.ipynb' is not a notebook: it is not JSON" in (await edit(bench, cell_id="sum", new_source="x")).text


@pytest.mark.parametrize(
    ("arguments", "applied"),
    [
        ({"cell_id": "sum", "new_source": "7"}, True),
        ({"edit_mode": "insert", "cell_type": "code", "new_source": "7"}, True),
        ({"cell_id": "sum", "edit_mode": "delete"}, False),
    ],
)
async def test_a_repeated_notebook_edit_after_a_crash_reports_its_state(
    bench: ToolHarness, arguments: dict[str, Any], applied: bool
) -> None:
    await edit(bench, **arguments)
    after = (bench.root / "a.ipynb").read_bytes()
    again = await bench.rerun_after_crash(2)
    assert ("already has this change" in again.text, "may be in it" in again.text) == (applied, not applied)
    assert (bench.root / "a.ipynb").read_bytes() == after
