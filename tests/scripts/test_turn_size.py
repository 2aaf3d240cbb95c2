"""The gate on the modules of the loop that a turn runs through."""

from pathlib import Path

from scripts.gates.sizes import check_turn
from scripts.gates.tree import File


def write_loop(root: Path, modules: dict[str, str]) -> list[File]:
    folder = root / "src/vaka/core/loop"
    folder.mkdir(parents=True)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    return [File(root, f"src/vaka/core/loop/{name}.py") for name in modules]


def test_a_turn_may_import_seven_other_modules_of_the_loop(tmp_path: Path) -> None:
    names = [f"part{number}" for number in range(7)]
    imports = "".join(f"from vaka.core.loop.{name} import x\n" for name in names)
    files = write_loop(tmp_path, {"turn": imports, **dict.fromkeys(names, "x = 1\n"), "unused": "x = 1\n"})
    assert list(check_turn(files)) == []


def test_a_module_that_an_imported_module_imports_counts(tmp_path: Path) -> None:
    modules = {"turn": "from vaka.core.loop import part0\n"}
    modules |= {f"part{number}": f"from vaka.core.loop.part{number + 1} import x\n" for number in range(8)}
    (problem,) = check_turn(write_loop(tmp_path, {**modules, "part8": "x = 1\n"}))
    assert (problem.path, problem.text) == (
        "src/vaka/core/loop/turn.py",
        "a turn runs through 10 files of core/loop with 10 lines; at most 8 and 1500",
    )


def test_the_lines_of_all_modules_count_together(tmp_path: Path) -> None:
    files = write_loop(tmp_path, {"turn": "from vaka.core.loop.step import x\n", "step": "x = 1\n" * 1_500})
    (problem,) = check_turn(files)
    assert "2 files of core/loop with 1501 lines" in problem.text
