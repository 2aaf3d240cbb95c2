"""The table of the formats of secrets: a row that is wrong is an error that shows it."""

import pytest

from vaka.matching.secret_rules import Chars, SecretRule, Words, parse_secret_rules
from vaka.matching.secret_values import has_digit

TABLE = """
tokens = [['ab- cd-', 'a-z', 20, 40, 'has_digit']]

[fragments]
equals = '='

[[composed]]
name = 'two parts'
parts = [['x_'], ['0-9', 4, 8]]

[[contextual]]
name = 'pin'
context = ['pin', '<equals>']
parts = [['0-9', 4, 4]]
keywords = ['pin']
"""


def test_a_table_becomes_rules() -> None:
    tokens, contextual = parse_secret_rules(TABLE)
    assert tokens == (
        SecretRule("ab-", (Words(("ab-", "cd-")), Chars("a-z", 20, 40)), is_secret=has_digit),
        SecretRule("two parts", (Words(("x_",)), Chars("0-9", 4, 8))),
    )
    assert contextual == (SecretRule("pin", (Chars("0-9", 4, 4),), "pin=", ("pin",)),)


@pytest.mark.parametrize(
    ("right", "wrong", "problem"),
    [
        ("'has_digit'", "'is_prime'", "there is no check 'is_prime'; the checks are has_digit, "),
        ("'<equals>'", "'<colon>'", "there is no fragment 'colon'; the fragments are equals"),
        ("['0-9', 4, 8]", "['0-9', 8, 4]", "expected .words. or .characters, least, most., got .'0-9', 8, 4."),
        ("['x_']", "['']", "expected .words. or "),
        ("keywords = ['pin']", "keyword = ['pin']", "unexpected keyword argument 'keyword'"),
        ("20, 40, 'has_digit'", "20", "not enough values"),
    ],
)
def test_a_wrong_row_is_an_error_that_shows_it(right: str, wrong: str, problem: str) -> None:
    assert right in TABLE
    with pytest.raises(ValueError, match=rf"^secret_rules\.toml: the rule .* is wrong: .*{problem}"):
        parse_secret_rules(TABLE.replace(right, wrong))
