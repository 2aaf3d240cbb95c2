import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import pyluau
from pyluau import _native

STUB = ast.parse(Path(_native.__file__).with_name("_native.pyi").read_text())
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}


def names(node: ast.ClassDef) -> set[str]:
    return {item.name for item in node.body if isinstance(item, ast.FunctionDef)}


def public(thing: Any) -> set[str]:
    return {name for name in vars(thing) if not name.startswith("_")}


def test_the_stub_names_everything_the_module_has() -> None:
    declared = {node.name for node in STUB.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    declared |= {
        node.target.id for node in STUB.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    ours = {name for name in vars(_native) if not name.startswith("_")}
    assert declared == {*ours, "__version__"}


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_the_stub_names_every_method(name: str) -> None:
    assert {each for each in names(CLASSES[name]) if not each.startswith("_")} == public(getattr(_native, name))


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_the_stub_names_every_parameter(name: str) -> None:
    for item in CLASSES[name].body:
        if isinstance(item, ast.FunctionDef) and not item.name.startswith("_") and not item.decorator_list:
            real = inspect.signature(getattr(getattr(_native, name), item.name))
            spec = item.args
            stub = [each.arg for each in [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]]
            stub += [spec.vararg.arg] if spec.vararg else []
            assert sorted(stub) == sorted(real.parameters), f"{name}.{item.name}"


def test_everything_public_has_a_docstring() -> None:
    for name in pyluau.__all__:
        thing = getattr(pyluau, name)
        if callable(thing):
            assert thing.__doc__, name


def test_the_public_names_are_sorted_and_there() -> None:
    assert pyluau.__all__ == sorted(pyluau.__all__)
    assert all(hasattr(pyluau, name) for name in pyluau.__all__)


README = (Path(__file__).parent.parent / "README.md").read_text()


@pytest.mark.parametrize("example", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_the_examples_of_the_readme_run(example: str) -> None:
    exec(compile(example, "README.md", "exec"), {"__name__": "example"})
