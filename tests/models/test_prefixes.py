"""Folds over the messages of conversations, kept for the next prompt."""

from tests.models.conversations import conversation
from vaka.core.ports.model import Prompt
from vaka.core.types.message import Image, Message, Text, UserMessage
from vaka.models.prefixes import MESSAGE_OVERHEAD, WINDOW, Comparison, PrefixMemo, size_of


class Added:
    """A fold that records what it is given."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.added = 0

    def add(self, message: Message) -> None:
        self.messages.append(message)
        self.added += 1

    def mark(self) -> int:
        return len(self.messages)

    def rollback(self, mark: int) -> None:
        del self.messages[mark:]

    def settle(self, mark: int) -> None:
        pass


def fold(memo: PrefixMemo[Added], messages: tuple[Message, ...], session: str = "s") -> Added:
    prompt = Prompt(messages=messages, session=session)
    kept = memo.take(prompt)
    memo.put(prompt, kept)
    assert kept.fold.messages == list(messages)
    return kept.fold


def say(text: str) -> UserMessage:
    return UserMessage(content=(Text(text=text),))


def test_a_longer_prompt_adds_only_its_new_messages() -> None:
    memo, messages = PrefixMemo(Added), conversation(30)
    first = fold(memo, messages[:20])
    assert fold(memo, messages) is first
    assert first.added == 30


def test_the_last_messages_may_be_replaced() -> None:
    memo, messages = PrefixMemo(Added), conversation(30)
    first = fold(memo, messages)
    assert fold(memo, (*messages[:-WINDOW], say("a"), say("b"))) is first
    assert first.added == 32


def test_a_change_of_an_older_message_is_a_new_start() -> None:
    memo, messages = PrefixMemo(Added), conversation(30)
    first = fold(memo, messages)
    changed = fold(memo, (*messages[: -WINDOW - 1], say("a"), *messages[-WINDOW:]))
    assert changed is not first
    assert changed.added == 30


def test_an_equal_message_is_not_the_same_message() -> None:
    old, new = (say("a"), say("b"), say("c")), (say("a"),)
    assert Comparison().common_length(old, (*old[:2], say("c"))) == 2
    assert Comparison().common_length(old, new) == 0
    assert Comparison().common_length(old, old[:2]) == 2


def test_a_comparison_keeps_its_last_result_until_it_is_cleared() -> None:
    comparison, old = Comparison(), conversation(9)
    new = (*old, say("a"))
    assert [comparison.common_length(old, new) for _ in range(2)] == [9, 9]
    comparison.clear()
    assert comparison.common_length(old, new) == 9


def test_prompts_without_a_session_are_known_by_their_first_message() -> None:
    memo, messages = PrefixMemo(Added), conversation(30)
    first = fold(memo, messages[:20], session="")
    assert fold(memo, messages, session="") is first
    assert fold(memo, conversation(20), session="") is not first
    assert fold(memo, (), session="").added == 0
    assert len(memo) == 2


def test_no_two_calls_use_one_fold() -> None:
    memo, prompt = PrefixMemo(Added), Prompt(messages=conversation(3), session="s")
    first, second = memo.take(prompt), memo.take(prompt)
    assert first.fold is not second.fold
    memo.put(prompt, first)
    memo.put(prompt, second)
    assert memo.take(prompt) is second
    assert memo.size == 0


def test_the_least_recently_used_conversations_are_dropped() -> None:
    memo, messages = PrefixMemo(Added, max_conversations=2), conversation(3)
    first = fold(memo, messages, "a")
    fold(memo, messages, "b")
    assert fold(memo, messages, "a") is first
    fold(memo, messages, "c")
    assert fold(memo, messages, "a") is first
    assert len(memo) == 2


def test_the_size_of_all_conversations_is_bounded() -> None:
    memo = PrefixMemo(Added, max_size=10_000)
    for number in range(20):
        fold(memo, (say("x" * 2000),), f"s{number}")
    assert len(memo) == 3
    assert memo.size <= 10_000


def test_a_large_conversation_is_not_kept() -> None:
    memo = PrefixMemo(Added, max_conversation_size=10_000)
    fold(memo, (say("x"), say("x" * 20_000)))
    assert (len(memo), memo.size) == (0, 0)


def test_the_size_follows_messages_that_are_replaced() -> None:
    memo = PrefixMemo(Added)
    fold(memo, (start := say("a"), say("x" * 1000)))
    fold(memo, (start, say("xx")))
    assert memo.size == 2 * MESSAGE_OVERHEAD + 3


def test_the_size_of_a_message_is_that_of_its_texts_and_media() -> None:
    assert size_of(UserMessage(content=(Text(text="abc"), Image(data="abcd")))) == MESSAGE_OVERHEAD + 7
    assert [size_of(message) - MESSAGE_OVERHEAD for message in conversation(4)] == [12, 14, 9, 11]
