"""Everybody gets a version they asked for, the highest there is, or hears who asked for what."""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.luau.packages.sample_packages import publish_package
from vaka.core.types.errors import NotFound
from vaka.luau.packages.errors import PackageCycle, PackageError, ResolutionError
from vaka.luau.packages.registry import FolderRegistry, Release
from vaka.luau.packages.resolution import Resolution, choose_releases, parse_lock, read_lock, resolve, write_lock
from vaka.luau.packages.versions import Range, Version

Requirements = Mapping[str, Mapping[str, Mapping[str, str]]]


class FakeRegistry:
    """A registry of releases that exist only by name: ``{package: {version: {needed: range}}}``."""

    def __init__(self, content: Requirements) -> None:
        self.requested_names: list[str] = []
        self.content = {
            name: [
                Release(
                    Version.parse(version),
                    "0" * 64,
                    1,
                    "",
                    dependencies={on: Range(text) for on, text in needs.items()},
                )
                for version, needs in versions.items()
            ]
            for name, versions in content.items()
        }

    async def releases(self, name: str) -> Sequence[Release]:
        self.requested_names.append(name)
        return self.content.get(name, [])

    async def fetch(self, name: str, version: Version, *, limit: int) -> bytes:
        raise NotFound(f"{name} {version} within {limit} bytes")


async def choose_versions(content: Requirements, lock: Resolution | None = None, **roots: str) -> dict[str, str]:
    found = await resolve(roots, FakeRegistry(content), lock=lock)
    return {name: str(release.version) for name, release in found.packages.items()}


async def resolution_error(content: Requirements, **roots: str) -> ResolutionError:
    with pytest.raises(ResolutionError) as error:
        await resolve(roots, FakeRegistry(content))
    return error.value


async def test_the_highest_version_that_suits_is_chosen_with_what_it_needs() -> None:
    content: Requirements = {
        "a": {"1.0.0": {}, "1.2.0": {"b": "^1"}, "2.0.0": {}},
        "b": {"1.0.0": {}, "1.10.0": {}, "1.9.0": {}, "2.0.0": {}},
    }
    assert await choose_versions(content, a="^1") == {"a": "1.2.0", "b": "1.10.0"}


async def test_nothing_asked_is_nothing_chosen() -> None:
    assert await choose_versions({"a": {"1.0.0": {}}}) == {}


async def test_one_version_serves_everybody_even_if_it_is_not_the_highest() -> None:
    content: Requirements = {
        "a": {"1.0.0": {"c": "^1.0"}},
        "b": {"1.0.0": {"c": "<1.5"}},
        "c": {"1.0.0": {}, "1.4.0": {}, "1.9.0": {}},
    }
    assert await choose_versions(content, a="*", b="*") == {"a": "1.0.0", "b": "1.0.0", "c": "1.4.0"}


async def test_an_older_version_is_taken_when_the_newest_cannot_be_served() -> None:
    content: Requirements = {
        "a": {"1.0.0": {"c": "^1"}, "2.0.0": {"c": "^2"}},
        "b": {"1.0.0": {"c": "^1"}},
        "c": {"1.0.0": {}, "2.0.0": {}},
    }
    assert await choose_versions(content, a="*", b="*") == {"a": "1.0.0", "b": "1.0.0", "c": "1.0.0"}


async def test_a_version_that_needs_an_unknown_package_is_passed_over() -> None:
    content = {"a": {"1.0.0": {}, "1.1.0": {"ghost": "*"}}}
    assert await choose_versions(content, a="^1") == {"a": "1.0.0"}


async def test_a_pre_release_is_chosen_only_when_it_is_asked_for() -> None:
    content: Requirements = {"a": {"1.0.0": {}, "2.0.0-rc.1": {}}}
    assert await choose_versions(content, a="latest") == {"a": "1.0.0"}
    assert await choose_versions(content, a=">=2.0.0-0") == {"a": "2.0.0-rc.1"}


async def test_what_is_locked_stays_while_it_suits() -> None:
    old: Requirements = {"a": {"1.0.0": {"b": "^1"}}, "b": {"1.0.0": {}}}
    new: Requirements = {"a": {"1.0.0": {"b": "^1"}, "1.1.0": {"b": "^1.1"}}, "b": {"1.0.0": {}, "1.1.0": {}}}
    lock = await resolve({"a": "^1"}, FakeRegistry(old))
    assert await choose_versions(new, lock, a="^1") == {"a": "1.0.0", "b": "1.0.0"}
    assert await choose_versions(new, lock, a=">1.0.0") == {"a": "1.1.0", "b": "1.1.0"}
    assert await choose_versions(new, a="^1") == {"a": "1.1.0", "b": "1.1.0"}


async def test_a_conflict_says_who_asked_for_what_and_what_there_is() -> None:
    content: Requirements = {
        "a": {"1.0.0": {"c": "^1"}},
        "b": {"1.3.0": {"c": "^2"}},
        "c": {"1.0.0": {}, "2.0.0": {}},
    }
    error = await resolution_error(content, a="^1", b="*")
    assert error.clashes == ("c: a 1.0.0 asks for ^1, b 1.3.0 asks for ^2; there are 2.0.0, 1.0.0",)
    assert str(error) == f"no set of versions suits everybody:\n- {error.clashes[0]}"


async def test_a_conflict_with_the_project_says_so() -> None:
    content: Requirements = {"a": {"1.0.0": {"c": "^1"}}, "c": {"1.0.0": {}, "2.0.0": {}}}
    error = await resolution_error(content, a="*", c="^2")
    assert error.clashes == ("c: the project asks for ^2, a 1.0.0 asks for ^1; there are 2.0.0, 1.0.0",)


async def test_a_version_that_needs_what_an_earlier_choice_rules_out_is_passed_over() -> None:
    content: Requirements = {
        "a": {"1.0.0": {"m": "*"}},
        "m": {"1.0.0": {"z": ">=2"}, "2.0.0": {"z": "^1"}},
        "z": {"1.0.0": {}, "2.0.0": {}},
    }
    assert await choose_versions(content, a="*", z="*") == {"a": "1.0.0", "m": "1.0.0", "z": "2.0.0"}


async def test_who_rules_out_an_earlier_choice_is_named() -> None:
    content: Requirements = {
        "a": {"1.0.0": {"m": "*"}},
        "m": {"1.0.0": {"z": "^3"}, "2.0.0": {"z": "^1"}},
        "z": {"1.0.0": {}, "2.0.0": {}},
    }
    assert (await resolution_error(content, a="*", z="^2")).clashes == (
        "z: the project asks for ^2, m 2.0.0 asks for ^1; there are 2.0.0, 1.0.0",
        "z: the project asks for ^2, m 1.0.0 asks for ^3; there are 2.0.0, 1.0.0",
    )


async def test_an_earlier_choice_is_given_up_for_one_that_suits_all() -> None:
    content: Requirements = {
        "a": {"1.0.0": {"m": "*"}},
        "m": {"1.0.0": {"z": "^1"}},
        "z": {"1.0.0": {}, "2.0.0": {}},
    }
    assert await choose_versions(content, a="*", z="*") == {"a": "1.0.0", "m": "1.0.0", "z": "1.0.0"}


async def test_an_unknown_package_is_named_with_who_asks_for_it() -> None:
    assert (await resolution_error({}, ghost="^1")).clashes == ("ghost: the project asks for ^1; no such package",)
    error = await resolution_error({"a": {"1.0.0": {"ghost": "*"}}}, a="*")
    assert error.clashes == ("ghost: a 1.0.0 asks for *; no such package",)


async def test_a_range_nobody_serves_is_told_with_some_of_what_there_is() -> None:
    content = {"a": {f"1.{number}.0": dict[str, str]() for number in range(20)}}
    [clash] = (await resolution_error(content, a="^2")).clashes
    assert clash.startswith("a: the project asks for ^2; there are 1.19.0, 1.18.0,")
    assert clash.endswith("1.10.0, …")


async def test_only_the_first_clashes_are_told() -> None:
    content = {f"a{number}": {"1.0.0": {"c": f"^{number + 2}"}} for number in range(9)} | {"c": {"1.0.0": {}}}
    tree = {"r": {f"{number}.0.0": {f"a{number}": "*"} for number in range(9)}}
    assert len((await resolution_error({**content, **tree}, r="*")).clashes) == 5


async def test_a_circle_is_told_with_its_chain() -> None:
    content: Requirements = {
        "start": {"1.0.0": {"a": "*"}},
        "a": {"1.0.0": {"b": "*"}},
        "b": {"1.2.0": {"c": "*"}},
        "c": {"1.0.0": {"a": "^1"}},
    }
    with pytest.raises(PackageCycle, match=r"in a circle: a@1\.0\.0 → b@1\.2\.0 → c@1\.0\.0 → a@1\.0\.0") as error:
        await choose_versions(content, start="*")
    assert error.value.chain == ("a@1.0.0", "b@1.2.0", "c@1.0.0", "a@1.0.0")


async def test_a_package_that_needs_itself_is_a_circle_too() -> None:
    with pytest.raises(PackageCycle, match=r"a@1\.0\.0 → a@1\.0\.0"):
        await choose_versions({"a": {"1.0.0": {"a": "*"}}}, a="*")


async def test_many_ways_to_the_same_package_are_no_circle() -> None:
    layers = 30
    content = {
        f"{side}{depth}": {"1.0.0": {f"{other}{depth + 1}": "*" for other in "lr" if depth + 1 < layers}}
        for depth, side in product(range(layers), "lr")
    }
    assert len(await choose_versions(content, l0="*", r0="*")) == 2 * layers


async def test_choices_that_have_no_part_in_a_dead_end_are_not_tried_again() -> None:
    """Twenty packages of ten versions each lie between the conflict and its cause: 10²⁰ ways to go back one by one."""
    versions = {f"1.{number}.0": dict[str, str]() for number in range(10)}
    content: dict[str, Mapping[str, Mapping[str, str]]] = {f"m{number}": versions for number in range(20)}
    content["a"] = {"1.0.0": {"z": "^1"}, "2.0.0": {"z": "^2"}}
    content["y"] = {"1.0.0": {"z": "^1"}}
    content["z"] = {"1.0.0": {}, "2.0.0": {}}
    found = (await resolve(dict.fromkeys(content, "*"), FakeRegistry(content))).packages
    assert [str(found[name].version) for name in ("a", "z", "m7")] == ["1.0.0", "1.0.0", "1.9.0"]


async def test_a_search_that_does_not_end_is_given_up() -> None:
    """Pigeons and holes: every pair excludes each other on each of too few values."""
    birds, holes = 9, 8
    content: dict[str, Mapping[str, Mapping[str, str]]] = {}
    for bird in range(birds):
        content[f"b{bird}"] = {
            f"1.{hole}.0": {
                f"x{min(bird, other)}-{max(bird, other)}-{hole}": f"={bird}" for other in range(birds) if other != bird
            }
            for hole in range(holes)
        }
    content |= {
        f"x{one}-{two}-{hole}": {f"{one}.0.0": {}, f"{two}.0.0": {}}
        for one, two, hole in product(range(birds), range(birds), range(holes))
        if one < two
    }
    error = await resolution_error(content, **{f"b{bird}": "*" for bird in range(birds)})
    assert str(error).startswith("gave up after 50000 steps; narrow the ranges")


async def test_a_registry_without_end_is_not_followed_for_ever() -> None:
    class Endless:
        async def releases(self, name: str) -> Sequence[Release]:
            return [Release(Version(1, 0, 0), "", 1, "", dependencies={f"p{int(name[1:]) + 1}": Range("*")})]

        async def fetch(self, name: str, version: Version, *, limit: int) -> bytes:
            raise NotFound(name)

    with pytest.raises(ResolutionError, match="more than 1000 packages could be needed"):
        await resolve({"p0": "*"}, Endless())


async def test_a_registry_is_asked_only_for_what_could_be_needed_and_once() -> None:
    content: Requirements = {
        "a": {"1.0.0": {"old": "*"}, "2.0.0": {"b": "*"}},
        "b": {"1.0.0": {}},
        "old": {"1.0.0": {}},
    }
    shelf = FakeRegistry(content)
    await resolve({"a": "^2", "b": "^1"}, shelf)
    assert sorted(shelf.requested_names) == ["a", "b"]


@pytest.mark.parametrize("roots", [{"../a": "*"}, {"a": "newest"}, {"A": "*"}])
async def test_a_wish_that_makes_no_sense_is_refused(roots: dict[str, str]) -> None:
    with pytest.raises(PackageError):
        await resolve(roots, FakeRegistry({}))


async def test_a_registry_that_names_a_package_like_a_path_is_not_followed() -> None:
    with pytest.raises(PackageError, match=r"'\.\./x' cannot name a package"):
        await resolve({"a": "*"}, FakeRegistry({"a": {"1.0.0": {"../x": "*"}}}))


# Every small world: packages p0 … p3 that need only later ones, so that no circle hides a choice.
RANGES = st.sampled_from(["*", "^1", "^2", "1.0.0", "<2", ">=1.1", "!=2.0.0", "1.x || 3"])
WORLDS = st.fixed_dictionaries(
    {
        f"p{number}": st.dictionaries(
            st.sampled_from(["1.0.0", "1.1.0", "2.0.0"]),
            st.dictionaries(st.sampled_from([f"p{later}" for later in range(number + 1, 4)]), RANGES, max_size=2)
            if number < 3
            else st.just(dict[str, str]()),
            max_size=3,
        )
        for number in range(4)
    }
)
ROOTS = st.dictionaries(st.sampled_from(["p0", "p1", "p2", "p3"]), RANGES, min_size=1, max_size=3)


def satisfies_all(roots: Mapping[str, Range], picked: Mapping[str, Release | None]) -> bool:
    """Tell whether a choice for each package, None for none, gives everybody what they ask for."""
    wishes = [roots, *(release.dependencies for release in picked.values() if release)]
    found = ((picked[name], wanted) for wish in wishes for name, wanted in wish.items())
    return all(release is not None and release.version in wanted for release, wanted in found)


@given(WORLDS, ROOTS)
def test_a_choice_is_found_exactly_when_there_is_one(world: Requirements, wishes: dict[str, str]) -> None:
    shelf = FakeRegistry(world).content
    roots = {name: Range(text) for name, text in wishes.items()}
    every = product(*([None, *shelf[name]] for name in shelf))
    possible = any(satisfies_all(roots, dict(zip(shelf, picked, strict=True))) for picked in every)
    try:
        found = choose_releases(roots, shelf)
    except ResolutionError as error:
        assert not possible
        assert error.clashes  # noqa: PT017  # both outcomes are looked at
        return
    assert possible
    assert satisfies_all(roots, {name: found.packages.get(name) for name in shelf})
    needed = {name for wish in [roots, *(r.dependencies for r in found.packages.values())] for name in wish}
    assert set(found.packages) == needed
    turned = {name: releases[::-1] for name, releases in reversed(shelf.items())}
    assert choose_releases(dict(reversed(roots.items())), turned) == found


async def test_a_lock_file_reads_back_and_equal_resolutions_are_equal_bytes(tmp_path: Path) -> None:
    registry = FolderRegistry(tmp_path / "registry")
    await publish_package(registry, "json", "1.0.0")
    await publish_package(registry, "text", "1.0.0+b", json="^1")
    found = await resolve({"text": "^1", "json": "*"}, registry)
    again = await resolve({"json": "*", "text": "^1"}, registry)
    await write_lock(tmp_path / "vaka-luau.lock", found)
    assert await read_lock(tmp_path / "vaka-luau.lock") == found
    assert (tmp_path / "vaka-luau.lock").read_bytes() == found.encode() == again.encode()
    assert found.packages["json"] == (await registry.releases("json"))[0]


async def test_a_lock_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such file"):
        await read_lock(tmp_path / "vaka-luau.lock")


def make_lock(name: str = "a", roots: Mapping[str, str] | None = None, **changes: Any) -> dict[str, Any]:
    release = {"version": "1.0.0", "sha256": "0" * 64, "size": 1, "checksum": "", **changes}
    return {"format": 1, "roots": roots or {}, "packages": {name: release}}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "expected an object, not list"),
        ({"format": 1, "roots": {}, "package": {}}, "unknown key 'package'; did you mean 'packages'"),
        ({"format": 2, "roots": {}, "packages": {}}, "format 2; expected 1"),
        (make_lock(roots={"b": "^1"}), "the project asks for 'b' ^1, it has none; resolve again"),
        (make_lock(roots={"a": "^2"}), "the project asks for 'a' ^2, it has 1.0.0; resolve again"),
        (make_lock(dependencies={"b": "*"}), "'a' asks for 'b' *, it has none; resolve again"),
        (make_lock("../a"), "'../a' cannot name a package"),
        (make_lock(sha256="abc"), "sha256 'abc' of 'a'; expected 64 hexadecimal digits"),
        (make_lock(version="../1"), "'../1' is not a version"),
        (make_lock(size="1"), "Expected `int`, got `str`"),
        (make_lock(sice=1), "unknown field `sice`"),
    ],
)
def test_a_lock_file_that_is_not_whole_is_refused(document: Any, said: str) -> None:
    with pytest.raises(PackageError) as error:
        parse_lock(json.dumps(document).encode())
    assert said in str(error.value)
