"""Descriptions from docstrings."""

import pytest

from vaka.tools.schema.type_reader import ParsedDocstring, parse_docstring

GOOGLE = """
    Find things.

    All of them.

    Args:
        query (str, optional): What to find:
            words or a phrase.

            With a second paragraph.
        limit: How many.
        **rest: More.
        not an entry

    Returns:
        The things.
"""
NUMPY = """
    Find things.

    Parameters
    ----------
    query : str
        What to find:
        words or a phrase.
    limit, offset : int, optional
        How many.
    **rest
        More.

    Returns
    -------
    list
        The things.
"""
SPHINX = """
    Find things.

    :param str query: What to find:
        words or a phrase.
    :param limit: How many.
    :type limit: int
    :param **rest: More.
    :returns: The things.
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            GOOGLE,
            ParsedDocstring(
                "Find things.\n\nAll of them.\n\nReturns:\n    The things.",
                {
                    "query": "What to find: words or a phrase. With a second paragraph.",
                    "limit": "How many.",
                    "rest": "More.",
                },
            ),
        ),
        (
            NUMPY,
            ParsedDocstring(
                "Find things.\n\nReturns\n-------\nlist\n    The things.",
                {
                    "query": "What to find: words or a phrase.",
                    "limit": "How many.",
                    "offset": "How many.",
                    "rest": "More.",
                },
            ),
        ),
        (
            SPHINX,
            ParsedDocstring(
                "Find things.\n\n:returns: The things.",
                {"query": "What to find: words or a phrase.", "limit": "How many.", "rest": "More."},
            ),
        ),
        (None, ParsedDocstring("", {})),
        ("Args:", ParsedDocstring("Args:", {})),
        ("Args:\n\nNothing.", ParsedDocstring("Args:\n\nNothing.", {})),
        ("Parameters\nare many.", ParsedDocstring("Parameters\nare many.", {})),
        ("One.\n\nParameters\n----------", ParsedDocstring("One.", {})),
        ("\nArguments:\n    a: One.\n  b: Two.", ParsedDocstring("", {"a": "One.", "b": "Two."})),
    ],
    ids=["google", "numpy", "sphinx", "none", "header", "blank", "prose", "empty", "ragged"],
)
def test_every_docstring_style_is_parsed(text: str | None, expected: ParsedDocstring) -> None:
    assert parse_docstring(text) == expected
