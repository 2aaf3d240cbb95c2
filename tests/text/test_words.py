"""The words of texts, as a search compares them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vaka.text.words import MAX_WORD_LENGTH, locate_words, split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" ,.!? \n_-", []),
        ("The QUICK fox's 3.14", ["the", "quick", "fox", "s", "3", "14"]),
        ("snake_case kebab-case", ["snake", "case", "kebab", "case"]),
        ("Straße in MÜNCHEN, cafe\u0301", ["strasse", "in", "munchen", "cafe"]),
        ("İstanbul ﬁne ½ x²", ["istanbul", "fine", "1", "2", "x2"]),
        ("ｆｕｌｌ ｗｉｄｔｈ ｶﾇｰ", ["full", "width", "カヌ", "ヌー", "ー"]),
        ("東京都へ", ["東京", "京都", "都へ", "へ"]),
        ("港", ["港"]),
        ("用iPhone手機", ["用", "iphone", "手機", "機"]),
        ("카누 배", ["카누", "누", "배"]),
        ("เรือ", ["เร", "รื", "ือ", "อ"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("Привет Ёж", ["привет", "еж"]),
        ("x" * 100 + " é" + "y" * 100, ["x" * MAX_WORD_LENGTH, ("e" + "y" * 100)[:MAX_WORD_LENGTH]]),
        ("plain\nGröße\nplain ASCII\n東\n京", ["plain", "grosse", "plain", "ascii", "東", "京"]),
        ("\udcff\x00a\x00", ["a"]),
        ("🛶👩‍👩‍👧 boat", ["🛶", "👩", "👩", "👧", "boat"]),
        ("go🚀👍🏽 ❤️ ✅", ["go", "🚀", "👍", "❤", "✅"]),
        ("🇩🇪🇫🇷 🏴\U000e0067\U000e007f 1\ufe0f\u20e3", ["🇩🇪", "🇫🇷", "🏴", "1"]),
        ("10㎏ ㎡ ⓗⓘ ℃ №5 ㈱", ["10", "kg", "m2", "hi", "c", "no", "5", "株"]),
        ("Vaka™ → 5 € ° §", ["vaka", "5"]),
        ("donau\u00addampf \ufeffa\u2060b", ["donaudampf", "ab"]),
        ("מְלֻמָּד שָׁלוֹם", ["מלמד", "שלום"]),
        ("كِتَابٌ أحمد كـــتاب", ["كتاب", "احمد", "كتاب"]),
        ("的iphone", ["的", "iphone"]),
        ("台北 臺北 国語", ["臺北", "北", "臺北", "北", "國語", "語"]),
        ("Cats, boxes; STORIES!", ["cat", "box", "story"]),
        ("Größe der Boxes", ["grosse", "der", "box"]),
    ],
)
def test_a_text_is_split_into_words_without_case_accent_and_width(text: str, words: list[str]) -> None:
    assert split_words(text) == words


@pytest.mark.parametrize(
    "forms",
    [
        "cat cats",
        "box boxes",
        "story stories",
        "house houses",
        "case cases",
        "class classes",
        "bus buses",
        "hero heroes",
        "canoe canoes",
        "movie movies",
        "church churches",
        "cache caches",
        "status statuses",
        "cause causes",
        "day days",
        "size sizes",
        "pie pies",
        "lens lenses",
        "quiz quizzes",
        "use uses",
        "news",
        "this",
        "glass",
        "analysis",
        "Straße STRASSE strasse",
        "台灣 臺灣 台湾",
        "图书馆 圖書館",
    ],
)
def test_forms_of_a_word_are_compared_as_one(forms: str) -> None:
    first, *others = [split_words(form) for form in forms.split()]
    assert others == [first] * len(others)


@pytest.mark.parametrize("pair", ["cat catalogue", "new news", "bu bus", "a as", "2010 2010s1", "haus hausa"])
def test_other_words_stay_different(pair: str) -> None:
    one, other = pair.split()
    assert split_words(one) != split_words(other)


@given(st.text())
def test_words_are_located_in_the_text_in_the_order_in_which_they_are_split(text: str) -> None:
    located = list(locate_words(text))
    assert [word for word, _, _ in located] == split_words(text)
    assert all(0 <= first < after <= len(text) for _, first, after in located)


@given(st.text())
def test_words_have_no_characters_that_a_search_engine_interprets(text: str) -> None:
    for word in split_words(text):
        assert word
        assert not set(word) & set(" _\"'*-:()&|!<>\\\x00\n\t")
        assert word.encode()
