"""Traits: what the calls of a tool do, and which of their arguments name the files, commands and URLs."""

from pathlib import Path

import msgspec
import pytest

import vaka
from vaka.core.types.traits import NO_TRAITS, ToolTraits, builtin_traits, find_builtin_traits, find_traits
from vaka.errors import InvalidInput
from vaka.tools import Toolset
from vaka.tools.builtin import TOOLS, find_builtin


@vaka.tool(traits=ToolTraits(writes=True, paths=("path",), content="text"))
def save_note(path: str, text: str) -> str:
    """Save a note."""
    Path(path).write_text(text)
    return "saved"


def test_a_tool_has_the_traits_that_it_was_made_with() -> None:
    assert save_note.traits == ToolTraits(writes=True, paths=("path",), content="text")
    assert vaka.tool(lambda: None, name="nothing", description="Do nothing.").traits == NO_TRAITS


def test_traits_are_no_part_of_the_spec_and_of_its_digest() -> None:
    plain = vaka.tool(save_note, name="save_note")
    assert plain.traits == NO_TRAITS
    assert plain.spec == save_note.spec
    assert plain.spec.digest == save_note.spec.digest


def test_a_renamed_tool_keeps_its_traits() -> None:
    (renamed,) = Toolset([save_note]).prefix("my_").values()
    assert find_traits(renamed, "my_save_note") == save_note.traits


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_a_built_in_tool_has_its_traits_before_its_module_is_imported(name: str) -> None:
    assert find_traits(find_builtin(name), name) == find_builtin_traits(name) == builtin_traits()[name]


def test_a_name_that_no_built_in_tool_has_stands_for_no_traits() -> None:
    assert find_traits(None, "save_note") == find_builtin_traits("save_note") == NO_TRAITS
    assert find_traits(None, "Write").paths == ("file_path", "path")


def test_the_arguments_that_summarise_a_call_are_by_default_its_target() -> None:
    assert ToolTraits(summary=("title",), writes=True, paths=("path",)).main_arguments == ("title",)
    assert ToolTraits(commands=True, command="script").main_arguments == ("script",)
    assert ToolTraits(network=True, url="address").main_arguments == ("address",)
    assert ToolTraits(reads=True, paths=("path", "other")).main_arguments == ("path", "other")
    assert ToolTraits(reads=True, folders=("folder",)).main_arguments == ("folder",)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"paths": ("path",)}, "a tool with paths must say whether it reads them, writes them, or both"),
        ({"writes": True, "paths": "path"}, "paths must be a tuple of names, such as ('path',); got 'path'"),
        ({"writes": True, "paths": (1,)}, "paths must be a tuple of names, such as ('path',); got (1,)"),
        ({"folders": ("folder",)}, "a tool with folders=('folder',) needs reads=True"),
        ({"command": "script"}, "a tool with command='script' needs commands=True"),
        ({"url": "address"}, "a tool with url='address' needs network=True"),
        ({"replacement": ("old",)}, "replacement must name two arguments, old and new; got ('old',)"),
    ],
)
def test_traits_that_contradict_each_other_are_refused(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        ToolTraits(**fields)  # type: ignore[arg-type]  # it is not valid
    assert str(caught.value) == f"traits: {problem}"


def test_traits_that_name_an_argument_which_the_tool_lacks_are_refused() -> None:
    wrong = vaka.tool(save_note, traits=ToolTraits(writes=True, paths=("pth",)))
    with pytest.raises(InvalidInput, match="tool 'save_note': its traits name the argument 'pth', did you mean 'path'"):
        _ = wrong.spec


def test_a_tool_that_takes_any_argument_may_name_any_in_its_traits() -> None:
    @vaka.tool(traits=ToolTraits(reads=True, paths=("path",)))
    def read_any(**given: str) -> str:
        """Read anything."""
        return ", ".join(given)

    assert read_any.spec.name == "read_any"


def test_something_else_than_traits_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"traits must be ToolTraits\(…\), got \{'writes': True\}"):
        vaka.tool(traits={"writes": True})  # type: ignore[call-overload]  # it is not valid


def test_unknown_fields_of_stored_traits_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"harmless": True}, ToolTraits)
