"""The matcher without a model: patterns in many languages, arguments, several intents, negation, similarity."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vaka.core.types.errors import ConfigError
from vaka.genx.match.offline import OfflineMatcher
from vaka.genx.match.rules import parse_rule
from vaka.models.embedders import HashingEmbedder

RULES = [
    parse_rule(document)
    for document in (
        {
            "name": "play",
            "vars": {"title": {"label": "song"}, "artist": {}},
            "patterns": [
                "play [title]",
                "play [title] by [artist]",
                "播放[artist]的[title]",
                "播放[title]",
                "[artist]の[title]をかけて",
                "[artist]의 [title] 틀어줘",
                "pon [title]",
                "spiel [title]",
                "شغل [title]",
                "เปิดเพลง[title]",
                "mở bài [title]",
                ["唱一首[歌]", "title=[歌]"],
            ],
            "examples": [["no title", "I am in the mood for music", "play"], ["two", "a and b", "play\nplay"]],
        },
        {
            "name": "volume",
            "vars": {"level": {"type": "int"}},
            "patterns": [
                "set the volume to [level]",
                "音量调到[level]",
                "音量を[level]に",
                "[level]",
                ["mute", "volume: level=0"],
            ],
        },
        {"name": "do_not_disturb", "patterns": ["do not disturb me", "别打扰我"]},
        {
            "name": "pay",
            "vars": {"sum": {"type": "float"}, "to": {}},
            "patterns": ["send [to] [sum]", "pay [sum] to [to]"],
        },
    )
]
MATCHER = OfflineMatcher(RULES)


TEXTS: list[tuple[str, list[tuple[str, dict[str, Any]]]]] = [
    ("play Yesterday", [("play", {"title": "Yesterday"})]),
    ("Could you PLAY Hey Jude by The Beatles, please?", [("play", {"title": "Hey Jude", "artist": "The Beatles"})]),
    ("play Stand by Me by Ben E. King", [("play", {"title": "Stand by Me", "artist": "Ben E. King"})]),
    ("ｐｌａｙ Ｙｅｓｔｅｒｄａｙ", [("play", {"title": "Ｙｅｓｔｅｒｄａｙ"})]),
    ("请播放 周杰伦 的《晴天》吧。", [("play", {"artist": "周杰伦", "title": "晴天"})]),
    ("唱一首小星星", [("play", {"title": "小星星"})]),
    ("米津玄師のLemonをかけて", [("play", {"artist": "米津玄師", "title": "Lemon"})]),
    ("아이유의 좋은 날 틀어줘요", [("play", {"artist": "아이유", "title": "좋은 날"})]),
    ("Pon Despacito, por favor", [("play", {"title": "Despacito"})]),
    ("Spiel bitte Für Elise", [("play", {"title": "bitte Für Elise"})]),
    ("شغّل نسم علينا", [("play", {"title": "نسم علينا"})]),
    ("เปิดเพลงลอยกระทงหน่อยครับ", [("play", {"title": "ลอยกระทง"})]),
    ("mo bai Diễm xưa đi", [("play", {"title": "Diễm xưa"})]),
    ("音量调到三十五", [("volume", {"level": 35})]),
    ("音量を１２にお願いします", [("volume", {"level": 12})]),
    ("set the volume to twenty", [("volume", {"level": 20})]),
    ("音量调到一万二千", [("volume", {"level": 12000})]),
    ("set the volume to 1,000", [("volume", {"level": 1000})]),
    ("set the volume to 1.2.3", [("volume", {"level": "1.2.3"})]),
    ("pay 12,5 to Anna", [("pay", {"sum": 12.5, "to": "Anna"})]),
    ("set the volume to loud", [("volume", {"level": "loud"})]),
    ("volume 7 please", [("volume", {"level": 7})]),
    ("mute it", [("volume", {"level": 0})]),
    ("pay 12.50 to Anna", [("pay", {"sum": 12.5, "to": "Anna"})]),
    ("send Anna 5", [("pay", {"sum": 5.0, "to": "Anna"})]),
    ("I'm in the mood for some music", [("play", {})]),
    ("play Yesterday and then set the volume to 4", [("play", {"title": "Yesterday"}), ("volume", {"level": 4})]),
    ("播放晴天，然后音量调到9", [("play", {"title": "晴天"}), ("volume", {"level": 9})]),
    ("Play Salt and Pepper", [("play", {"title": "Salt and Pepper"})]),
    ("Good morning! Mute. Mute.", [("volume", {"level": 0})]),
    ("Mute. Mute it.", [("volume", {"level": 0})]),
    ("don't play Yesterday", []),
    ("No, play Yesterday", [("play", {"title": "Yesterday"})]),
    ("Đừng mở bài Diễm xưa", []),
    ("mở bài Diễm xưa được không", [("play", {"title": "Diễm xưa"})]),
    ("อย่าเปิดเพลงลอยกระทง", []),
    ("不要播放晴天", []),
    ("别打扰我", [("do_not_disturb", {})]),
    ("do not disturb me now", [("do_not_disturb", {})]),
    ("what is the capital of France?", []),
    ("今天星期几", []),
    ("display Yesterday", []),
    ("", []),
    ("?!", []),
]


@pytest.mark.parametrize(("text", "expected"), TEXTS)
def test_texts_match_rules_with_their_arguments(text: str, expected: list[tuple[str, dict[str, Any]]]) -> None:
    assert [(result.rule, result.given) for result in MATCHER.match(text)] == expected


def test_results_have_all_variables_the_clause_and_a_confidence() -> None:
    (result,) = MATCHER.match("Hi. Play Yesterday please! Bye.")
    assert result.args == {"title": "Yesterday", "artist": None}
    assert result.raw_text == "Play Yesterday please"
    assert 0.5 <= result.confidence < 1
    assert OfflineMatcher(RULES, threshold=1).match("play Yesterday") == []


class Directions:
    """An embedder that knows the words for music and for silence, in the direction of each."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        music, silence = ("play", "melody", "tune"), ("mute", "hush", "quieter")
        return [[self._knows(text, music), self._knows(text, silence), 0.1] for text in texts]

    def _knows(self, text: str, words: Sequence[str]) -> float:
        return float(any(word in text for word in words))


async def test_an_embedder_compares_sentences_in_which_nothing_matches() -> None:
    matcher = OfflineMatcher(RULES, embedder=Directions())
    assert [result.rule for result in await matcher.match_async("A melody would be nice. Hush!")] == ["play", "volume"]
    assert await matcher.match_async("A melody, but hush") == []  # as near to one as to the other
    assert await matcher.match_async("No melody today") == []
    assert await matcher.match_async("play Yesterday") == MATCHER.match("play Yesterday")
    assert await matcher.match_async("") == []
    assert matcher.match("Hush!") == await MATCHER.match_async("Hush!") == []
    sparse = OfflineMatcher(RULES, embedder=HashingEmbedder())
    assert await sparse.match_async("an unrelated remark") == []


def test_a_matcher_needs_rules_and_a_threshold_between_0_and_1() -> None:
    with pytest.raises(ConfigError, match="at least one rule"):
        OfflineMatcher([])
    with pytest.raises(ConfigError, match="above 0 and at most 1, not 0"):
        OfflineMatcher(RULES, threshold=0)


@given(
    st.lists(st.sampled_from(["[a]", "[b]", "[", "]", "的", "go", " ", ".", "[歌]"])),
    st.text(alphabet=st.sampled_from("a b的go，.1and ")),
)
def test_any_pattern_is_compared_with_any_text_without_an_error(parts: list[str], text: str) -> None:
    pattern = "".join(parts)
    assume(set(re.findall(r"\[(\w+)\]", pattern, re.ASCII)) <= {"a", "b"})  # others must be declared
    document = {"name": "r", "vars": {"a": {"type": "int"}, "b": {}}, "patterns": [pattern, [pattern, "a=[b], b=x"]]}
    assert {result.rule for result in OfflineMatcher([parse_rule(document)]).match(text)} <= {"r"}


@given(st.text(alphabet=st.sampled_from("play 播放的by,and.。の를 12３٣三万点") | st.characters()))
def test_any_text_is_matched_without_an_error(text: str) -> None:
    MATCHER.match(text)
