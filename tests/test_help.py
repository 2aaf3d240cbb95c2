"""``help(vaka.Runtime)``, ``help(vaka.Agent)`` and ``help(vaka.Session)`` in a terminal."""

import inspect
import pydoc
from collections.abc import Iterator
from typing import Any

import pytest

import vaka
from vaka.core.types.keywords import FoldedSignature

CLASSES = (vaka.Runtime, vaka.Agent, vaka.Session)
COLUMNS = 80


def help_of(kind: type[Any]) -> str:
    return pydoc.plain(pydoc.render_doc(kind))


def members_of(kind: type[Any]) -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of each public member."""
    for name in dir(kind):
        if not name.startswith("_"):
            yield name, inspect.getdoc(inspect.getattr_static(kind, name)) or ""


@pytest.mark.parametrize("kind", CLASSES)
def test_every_line_fits_in_a_terminal(kind: type[Any]) -> None:
    lines = [line for line in help_of(kind).splitlines() if "inherited from" not in line]  # pydoc writes these
    assert [line for line in lines if len(line) > COLUMNS] == []


@pytest.mark.parametrize("kind", CLASSES)
def test_no_line_shows_an_address_or_a_private_name(kind: type[Any]) -> None:
    words = help_of(kind).replace("(", " ").split()
    assert [word for word in words if "<object" in word or "0x" in word or "_UNSET" in word] == []
    assert [word for word in words if word.startswith("_") and not word.startswith("__")] == []
    assert "vaka.core.types.event." not in help_of(kind)  # types have short names


@pytest.mark.parametrize("kind", CLASSES)
def test_a_class_has_a_summary_and_an_example(kind: type[Any]) -> None:
    summary, _, rest = (inspect.getdoc(kind) or "").partition("\n\n")
    assert summary.endswith(".")
    assert "\n" not in summary
    assert "::\n\n    " in rest


@pytest.mark.parametrize("kind", CLASSES)
def test_each_member_has_a_summary_in_one_line(kind: type[Any]) -> None:
    summaries = {name: text.partition("\n\n")[0] for name, text in members_of(kind)}
    assert [name for name, text in summaries.items() if not text.endswith(".") or "\n" in text] == []


def test_a_method_that_must_be_awaited_says_so() -> None:
    methods = {"async": "async stats(self, session: str)", "awaitable": ") -> Awaitable[Session[Any, Any]]"}
    text = help_of(vaka.Runtime)
    assert {name: line in text for name, line in methods.items()} == dict.fromkeys(methods, True)


def test_types_have_the_form_in_which_people_write_them() -> None:
    text = help_of(vaka.Runtime)
    assert "agent: Agent[Any, Any] | None = None" in text
    assert "**details: Unpack[ApprovalAnswer]" in text
    assert "Optional[" not in text


def long_function(
    first: int, /, second: "list[int]", *rest: str, third: "vaka.Limits | None" = None, **more: Any
) -> None:
    """Do nothing."""


def short_function(first, *, second=2):  # type: ignore[no-untyped-def]  # a function without types
    """Do nothing."""


def test_a_long_signature_has_one_line_for_each_parameter() -> None:
    signature = FoldedSignature.of_function(long_function)
    assert str(signature).splitlines() == [
        "(",
        "    first: int,",
        "    /,",
        "    second: list[int],",
        "    *rest: str,",
        "    third: Limits | None = None,",
        "    **more: Any",
        ") -> None",
    ]
    assert signature.format(max_width=10) == str(signature)
    assert signature == inspect.signature(long_function)


def test_a_short_signature_is_one_line() -> None:
    assert str(FoldedSignature.of_function(short_function)) == "(first, *, second=2)"


def test_parameters_that_have_no_names_are_marked() -> None:
    def find(name: str, other: str, /) -> str:
        return name + other

    assert str(FoldedSignature.of_function(find)) == "(name: str, other: str, /) -> str"


def test_a_method_without_its_instance_keeps_the_layout() -> None:
    bound = inspect.signature(vaka.Agent("a", model="local").as_tool)
    assert str(bound) == "(*, name: str = '', description: str = '') -> AgentTool[Deps]"
