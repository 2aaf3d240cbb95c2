"""The picture of the packages in docs/design.md shows the imports of the source."""

from scripts.loop_pictures import PAGE, insert_pictures
from scripts.package_picture import PACKAGES, draw_packages


def test_the_picture_is_up_to_date() -> None:
    page = PAGE.read_text("utf-8")
    assert insert_pictures(page, {"packages": draw_packages}) == page, "run: python -m scripts.package_picture"


def test_the_picture_has_a_line_for_each_package_and_no_import_upwards() -> None:
    lines = [line.split("│") for line in draw_packages().splitlines() if "│" in line]
    names = [name.strip() for name, _ in lines]
    assert sorted(names) == sorted(PACKAGES)
    for name, imports in lines:
        found = imports.replace("·", "").split()
        assert [other for other in found if other in names[: names.index(name.strip())]] == []
