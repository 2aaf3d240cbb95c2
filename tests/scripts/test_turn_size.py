"""The gate on the modules of the core that a turn runs through."""

from pathlib import Path

from scripts.gates.sizes import MAX_TURN_FILES, MAX_TURN_LINES, check_turn
from scripts.gates.tree import File


def write_core(root: Path, modules: dict[str, str]) -> list[File]:
    for name, text in modules.items():
        path = root / f"src/vaka/core/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [File(root, f"src/vaka/core/{name}.py") for name in modules]


def test_a_turn_may_import_as_many_modules_as_the_limit_says(tmp_path: Path) -> None:
    names = [f"loop/part{number}" for number in range(MAX_TURN_FILES - 1)]
    imports = "".join(f"from vaka.core.{name.replace('/', '.')} import x\n" for name in names)
    files = write_core(tmp_path, {"loop/turn": imports, **dict.fromkeys(names, "x = 1\n"), "loop/unused": "x = 1\n"})
    assert list(check_turn(files)) == []


def test_a_module_that_an_imported_module_imports_counts(tmp_path: Path) -> None:
    modules = {"loop/turn": "from vaka.core.session import part0\n"}
    last = MAX_TURN_FILES
    modules |= {
        f"session/part{number}": f"from vaka.core.session.part{number + 1} import x\n" for number in range(last)
    }
    (problem,) = check_turn(write_core(tmp_path, {**modules, f"session/part{last}": "x = 1\n"}))
    found = f"a turn runs through {last + 2} files of the core with {last + 2} lines"
    assert problem.path == "src/vaka/core/loop/turn.py"
    assert problem.text == f"{found}; at most {MAX_TURN_FILES} and {MAX_TURN_LINES}"


def test_types_and_ports_do_not_count(tmp_path: Path) -> None:
    imports = "from vaka.core.ports.log import x\nfrom vaka.core.types.state import x\n"
    large = "x = 1\n" * (MAX_TURN_LINES + 1)
    assert (
        list(check_turn(write_core(tmp_path, {"loop/turn": imports, "ports/log": large, "types/state": large}))) == []
    )


def test_the_lines_of_all_modules_count_together(tmp_path: Path) -> None:
    modules = {"loop/turn": "from vaka.core.loop.step import x\n", "loop/step": "x = 1\n" * MAX_TURN_LINES}
    (problem,) = check_turn(write_core(tmp_path, modules))
    assert f"2 files of the core with {MAX_TURN_LINES + 1} lines" in problem.text
