"""``memory:query`` of scripts finds messages by whole words, and by pairs of characters where words have no spaces."""

from collections.abc import Sequence

import pytest

from vaka.luau.host.storage import rank_messages


def find(question: str, *texts: str) -> Sequence[object]:
    """Return the texts of the found messages, the best first."""
    found = rank_messages(question, [{"role": "user", "content": text} for text in texts], 10)
    return [message["content"] for message in found if isinstance(message, dict)]


@pytest.mark.parametrize(
    ("question", "found", "other"),
    [
        ("cat", "My cat sleeps.", "The catalogue is new."),
        ("CAT", "my cat", "concatenate"),
        ("x", "set x to 1", "the next box"),
        ("我", "我 在", "他 在"),
        ("貓頭", "這隻貓頭鷹", "這隻貓"),
    ],
)
def test_a_message_is_found_by_a_whole_word(question: str, found: str, other: str) -> None:
    assert find(question, other, found) == [found]


def test_more_shared_words_and_newer_messages_come_first() -> None:
    assert find("red cat", "a cat", "a red cat", "red wine") == ["a red cat", "red wine", "a cat"]
