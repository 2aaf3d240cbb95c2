"""The resolver finds the highest versions that satisfy all requirements, or names the conflicting ones."""

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
from vaka.luau.packages.registry import FolderRegistry, Release
from vaka.luau.packages.resolution import (
    PackageCycle,
    Resolution,
    ResolutionError,
    choose_releases,
    parse_lock,
    read_lock,
    resolve,
    write_lock,
)
from vaka.luau.packages.versions import PackageError, Range, Version

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


async def test_the_highest_match_is_chosen_with_its_dependencies() -> None:
    content: Requirements = {
        "a": {"1.0.0": {}, "1.2.0": {"b": "^1"}, "2.0.0": {}},
        "b": {"1.0.0": {}, "1.10.0": {}, "1.9.0": {}, "2.0.0": {}},
    }
    assert await choose_versions(content, a="^1") == {"a": "1.2.0", "b": "1.10.0"}


async def test_without_requirements_nothing_is_chosen() -> None:
    assert await choose_versions({"a": {"1.0.0": {}}}) == {}


async def test_one_version_satisfies_all_requirements_even_if_it_is_not_the_highest() -> None:
    content: Requirements = {
        "a": {"1.0.0": {"c": "^1.0"}},
        "b": {"1.0.0": {"c": "<1.5"}},
        "c": {"1.0.0": {}, "1.4.0": {}, "1.9.0": {}},
    }
    assert await choose_versions(content, a="*", b="*") == {"a": "1.0.0", "b": "1.0.0", "c": "1.4.0"}


async def test_an_older_version_is_chosen_when_the_newest_conflicts() -> None:
    content: Requirements = {
        "a": {"1.0.0": {"c": "^1"}, "2.0.0": {"c": "^2"}},
        "b": {"1.0.0": {"c": "^1"}},
        "c": {"1.0.0": {}, "2.0.0": {}},
    }
    assert await choose_versions(content, a="*", b="*") == {"a": "1.0.0", "b": "1.0.0", "c": "1.0.0"}


async def test_a_version_that_needs_an_unknown_package_is_skipped() -> None:
    content = {"a": {"1.0.0": {}, "1.1.0": {"ghost": "*"}}}
    assert await choose_versions(content, a="^1") == {"a": "1.0.0"}


async def test_a_pre_release_is_chosen_only_when_a_range_names_it() -> None:
    content: Requirements = {"a": {"1.0.0": {}, "2.0.0-rc.1": {}}}
    assert await choose_versions(content, a="latest") == {"a": "1.0.0"}
    assert await choose_versions(content, a=">=2.0.0-0") == {"a": "2.0.0-rc.1"}


async def test_a_locked_version_is_preferred_while_it_matches() -> None:
    old: Requirements = {"a": {"1.0.0": {"b": "^1"}}, "b": {"1.0.0": {}}}
    new: Requirements = {"a": {"1.0.0": {"b": "^1"}, "1.1.0": {"b": "^1.1"}}, "b": {"1.0.0": {}, "1.1.0": {}}}
    lock = await resolve({"a": "^1"}, FakeRegistry(old))
    assert await choose_versions(new, lock, a="^1") == {"a": "1.0.0", "b": "1.0.0"}
    assert await choose_versions(new, lock, a=">1.0.0") == {"a": "1.1.0", "b": "1.1.0"}
    assert await choose_versions(new, a="^1") == {"a": "1.1.0", "b": "1.1.0"}


async def test_a_conflict_lists_all_requirements_and_the_available_versions() -> None:
    content: Requirements = {
        "a": {"1.0.0": {"c": "^1"}},
        "b": {"1.3.0": {"c": "^2"}},
        "c": {"1.0.0": {}, "2.0.0": {}},
    }
    error = await resolution_error(content, a="^1", b="*")
    assert error.clashes == ("c: a 1.0.0 requires ^1, b 1.3.0 requires ^2; available: 2.0.0, 1.0.0",)
    assert str(error) == f"no set of versions satisfies all requirements:\n- {error.clashes[0]}"


async def test_a_conflict_names_the_requirement_of_the_project() -> None:
    content: Requirements = {"a": {"1.0.0": {"c": "^1"}}, "c": {"1.0.0": {}, "2.0.0": {}}}
    error = await resolution_error(content, a="*", c="^2")
    assert error.clashes == ("c: the project requires ^2, a 1.0.0 requires ^1; available: 2.0.0, 1.0.0",)


async def test_a_version_that_conflicts_with_an_earlier_choice_is_skipped() -> None:
    content: Requirements = {
        "a": {"1.0.0": {"m": "*"}},
        "m": {"1.0.0": {"z": ">=2"}, "2.0.0": {"z": "^1"}},
        "z": {"1.0.0": {}, "2.0.0": {}},
    }
    assert await choose_versions(content, a="*", z="*") == {"a": "1.0.0", "m": "1.0.0", "z": "2.0.0"}


async def test_packages_that_conflict_with_an_earlier_choice_are_named() -> None:
    content: Requirements = {
        "a": {"1.0.0": {"m": "*"}},
        "m": {"1.0.0": {"z": "^3"}, "2.0.0": {"z": "^1"}},
        "z": {"1.0.0": {}, "2.0.0": {}},
    }
    assert (await resolution_error(content, a="*", z="^2")).clashes == (
        "z: the project requires ^2, m 2.0.0 requires ^1; available: 2.0.0, 1.0.0",
        "z: the project requires ^2, m 1.0.0 requires ^3; available: 2.0.0, 1.0.0",
    )


async def test_an_earlier_choice_is_revised_to_satisfy_all_requirements() -> None:
    content: Requirements = {
        "a": {"1.0.0": {"m": "*"}},
        "m": {"1.0.0": {"z": "^1"}},
        "z": {"1.0.0": {}, "2.0.0": {}},
    }
    assert await choose_versions(content, a="*", z="*") == {"a": "1.0.0", "m": "1.0.0", "z": "1.0.0"}


async def test_an_unknown_package_is_named_with_its_requirer() -> None:
    assert (await resolution_error({}, ghost="^1")).clashes == ("ghost: the project requires ^1; no such package",)
    error = await resolution_error({"a": {"1.0.0": {"ghost": "*"}}}, a="*")
    assert error.clashes == ("ghost: a 1.0.0 requires *; no such package",)


async def test_a_range_without_a_match_is_an_error_that_lists_some_available_versions() -> None:
    content = {"a": {f"1.{number}.0": dict[str, str]() for number in range(20)}}
    [clash] = (await resolution_error(content, a="^2")).clashes
    assert clash.startswith("a: the project requires ^2; available: 1.19.0, 1.18.0,")
    assert clash.endswith("1.10.0, …")


async def test_only_the_first_clashes_are_listed() -> None:
    content = {f"a{number}": {"1.0.0": {"c": f"^{number + 2}"}} for number in range(9)} | {"c": {"1.0.0": {}}}
    tree = {"r": {f"{number}.0.0": {f"a{number}": "*"} for number in range(9)}}
    assert len((await resolution_error({**content, **tree}, r="*")).clashes) == 5


async def test_a_cycle_is_an_error_with_its_chain() -> None:
    content: Requirements = {
        "start": {"1.0.0": {"a": "*"}},
        "a": {"1.0.0": {"b": "*"}},
        "b": {"1.2.0": {"c": "*"}},
        "c": {"1.0.0": {"a": "^1"}},
    }
    with pytest.raises(PackageCycle, match=r"in a cycle: a@1\.0\.0 → b@1\.2\.0 → c@1\.0\.0 → a@1\.0\.0") as error:
        await choose_versions(content, start="*")
    assert error.value.chain == ("a@1.0.0", "b@1.2.0", "c@1.0.0", "a@1.0.0")


async def test_a_package_that_depends_on_itself_is_a_cycle() -> None:
    with pytest.raises(PackageCycle, match=r"a@1\.0\.0 → a@1\.0\.0"):
        await choose_versions({"a": {"1.0.0": {"a": "*"}}}, a="*")


async def test_many_paths_to_the_same_package_are_not_a_cycle() -> None:
    layers = 30
    content = {
        f"{side}{depth}": {"1.0.0": {f"{other}{depth + 1}": "*" for other in "lr" if depth + 1 < layers}}
        for depth, side in product(range(layers), "lr")
    }
    assert len(await choose_versions(content, l0="*", r0="*")) == 2 * layers


async def test_choices_that_do_not_contribute_to_a_dead_end_are_not_revised() -> None:
    """Twenty packages of ten versions each lie between the conflict and its cause: 10²⁰ ways to go back one by one."""
    versions = {f"1.{number}.0": dict[str, str]() for number in range(10)}
    content: dict[str, Mapping[str, Mapping[str, str]]] = {f"m{number}": versions for number in range(20)}
    content["a"] = {"1.0.0": {"z": "^1"}, "2.0.0": {"z": "^2"}}
    content["y"] = {"1.0.0": {"z": "^1"}}
    content["z"] = {"1.0.0": {}, "2.0.0": {}}
    found = (await resolve(dict.fromkeys(content, "*"), FakeRegistry(content))).packages
    assert [str(found[name].version) for name in ("a", "z", "m7")] == ["1.0.0", "1.0.0", "1.9.0"]


async def test_a_search_stops_after_too_many_steps() -> None:
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


async def test_a_registry_with_endless_dependencies_is_an_error() -> None:
    class Endless:
        async def releases(self, name: str) -> Sequence[Release]:
            return [Release(Version(1, 0, 0), "", 1, "", dependencies={f"p{int(name[1:]) + 1}": Range("*")})]

        async def fetch(self, name: str, version: Version, *, limit: int) -> bytes:
            raise NotFound(name)

    with pytest.raises(ResolutionError, match="more than 1000 packages could be needed"):
        await resolve({"p0": "*"}, Endless())


async def test_a_registry_is_asked_once_for_each_package_that_could_be_needed() -> None:
    content: Requirements = {
        "a": {"1.0.0": {"old": "*"}, "2.0.0": {"b": "*"}},
        "b": {"1.0.0": {}},
        "old": {"1.0.0": {}},
    }
    registry = FakeRegistry(content)
    await resolve({"a": "^2", "b": "^1"}, registry)
    assert sorted(registry.requested_names) == ["a", "b"]


@pytest.mark.parametrize("roots", [{"../a": "*"}, {"a": "newest"}, {"A": "*"}])
async def test_an_invalid_root_requirement_is_refused(roots: dict[str, str]) -> None:
    with pytest.raises(PackageError):
        await resolve(roots, FakeRegistry({}))


async def test_a_dependency_that_is_named_like_a_path_is_refused() -> None:
    with pytest.raises(PackageError, match=r"'\.\./x' is not a package name"):
        await resolve({"a": "*"}, FakeRegistry({"a": {"1.0.0": {"../x": "*"}}}))


# All small registries of packages p0 … p3, each of which depends only on later ones, so that there are no cycles.
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
    """Return whether a choice for each package, None for no version, satisfies all requirements."""
    requirements = [roots, *(release.dependencies for release in picked.values() if release)]
    pairs = ((picked[name], wanted) for needs in requirements for name, wanted in needs.items())
    return all(release is not None and release.version in wanted for release, wanted in pairs)


@given(WORLDS, ROOTS)
def test_a_choice_is_found_exactly_when_one_exists(world: Requirements, root_ranges: dict[str, str]) -> None:
    registry_content = FakeRegistry(world).content
    roots = {name: Range(text) for name, text in root_ranges.items()}
    choices = product(*([None, *registry_content[name]] for name in registry_content))
    possible = any(satisfies_all(roots, dict(zip(registry_content, picked, strict=True))) for picked in choices)
    try:
        found = choose_releases(roots, registry_content)
    except ResolutionError as error:
        assert not possible
        assert error.clashes  # noqa: PT017  # both outcomes are checked
        return
    assert possible
    assert satisfies_all(roots, {name: found.packages.get(name) for name in registry_content})
    needed = {name for needs in [roots, *(r.dependencies for r in found.packages.values())] for name in needs}
    assert set(found.packages) == needed
    reordered = {name: releases[::-1] for name, releases in reversed(registry_content.items())}
    assert choose_releases(dict(reversed(roots.items())), reordered) == found


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


async def test_a_missing_lock_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such file"):
        await read_lock(tmp_path / "vaka-luau.lock")


def make_lock(name: str = "a", roots: Mapping[str, str] | None = None, **changes: Any) -> dict[str, Any]:
    release = {"version": "1.0.0", "sha256": "0" * 64, "size": 1, "checksum": "", **changes}
    return {"format": 1, "roots": roots or {}, "packages": {name: release}}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "expected an object, not list"),
        ({"format": 1, "roots": {}, "package": {}}, "unknown key 'package'; did you mean 'packages'"),
        ({"format": 2, "roots": {}, "packages": {}}, "format 2; expected 1"),
        (make_lock(roots={"b": "^1"}), "the project requires 'b' ^1, it has none; resolve again"),
        (make_lock(roots={"a": "^2"}), "the project requires 'a' ^2, it has 1.0.0; resolve again"),
        (make_lock(dependencies={"b": "*"}), "'a' requires 'b' *, it has none; resolve again"),
        (make_lock("../a"), "'../a' is not a package name"),
        (make_lock(sha256="abc"), "sha256 'abc' of 'a'; expected 64 hexadecimal digits"),
        (make_lock(version="../1"), "'../1' is not a version"),
        (make_lock(size="1"), "Expected `int`, got `str`"),
        (make_lock(sice=1), "unknown field `sice`"),
    ],
)
def test_an_invalid_lock_file_is_refused(document: Any, problem: str) -> None:
    with pytest.raises(PackageError) as error:
        parse_lock(json.dumps(document).encode())
    assert problem in str(error.value)
