"""The generated reference pages are up to date."""

from pathlib import Path

import pytest

from scripts.reference import PAGES

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_docstrings_make(name: str) -> None:
    assert (REFERENCE / name).read_text("utf-8") == PAGES[name](), "run: python -m scripts.reference"
