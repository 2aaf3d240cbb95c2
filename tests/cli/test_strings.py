"""Interface texts: each one that is translated has a Chinese text with the same placeholders."""

import ast
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from tests.cli.chat.chat_in_process import chat_in_process
from vaka import Agent, Runtime
from vaka.cli import strings
from vaka.config.options import Commands
from vaka.core.types import decision_text
from vaka.models.scripted import Scripted

SOURCE = Path(strings.__file__).parent
DECISIONS = Path(decision_text.__file__)


def called_name(node: ast.AST) -> str:
    return getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""  # not str.translate, an attribute


def translation_calls() -> Iterator[tuple[str, ast.Call]]:
    """Yield each call that translates or marks a text, with its file and line."""
    for file in [*SOURCE.rglob("*.py"), DECISIONS]:
        text = file.read_text("utf-8")
        if "translat" not in text or file.name == "strings.py":
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and called_name(node) in ("translate", "mark_translatable"):
                yield f"{file.relative_to(SOURCE.parent)}:{node.lineno}", node


def placeholders_of(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


def test_every_translated_text_has_a_chinese_one_with_the_same_placeholders() -> None:
    translations = strings.load_translations("zh")
    used = set[str]()
    problems = list[str]()
    for place, call in translation_calls():
        first, given = call.args[0], {str(keyword.arg) for keyword in call.keywords}
        if isinstance(first, ast.JoinedStr | ast.BinOp):
            problems.append(f"{place}: the text is put together; write it as one constant with {{placeholders}}")
        if not isinstance(first, ast.Constant):
            continue
        english = str(first.value)
        used.add(english)
        if english not in translations:
            problems.append(f"{place}: strings_zh.json lacks {english!r}")
        elif placeholders_of(translations[english]) != placeholders_of(english):
            problems.append(f"{place}: the placeholders of {translations[english]!r} are other ones")
        if called_name(call) == "translate" and given and given != placeholders_of(english):
            problems.append(f"{place}: the values {sorted(given)} are not the placeholders of {english!r}")
    problems += [f"strings_zh.json: no call has the text {text!r}" for text in translations if text not in used]
    assert problems == []


@pytest.mark.parametrize(
    ("environ", "language"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.GB18030"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LANG": "en_GB.UTF-8", "LC_MESSAGES": "zh_TW.utf8"}, "zh"),
        ({"LANG": "de_DE.UTF-8", "LC_MESSAGES": ""}, "en"),
        ({"LANG": "C", "VAKA_LANG": "zh"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "VAKA_LANG": "en"}, "en"),
    ],
)
def test_the_language_is_that_of_the_variable_or_of_a_locale_that_can_show_it(
    environ: dict[str, str], language: str
) -> None:
    assert strings.language_of(environ) == language


@pytest.fixture
def chinese() -> Iterator[None]:
    strings.use_language("zh")
    yield
    strings.use_language("")


async def test_a_conversation_is_shown_in_chinese(
    chinese: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = Scripted([{"tool_calls": [{"name": "Bash", "arguments": {"command": "touch boat"}}]}, {"text": "Aye."}])
    agent: Agent[Any] = Agent("mate", model=model, tools=["Bash"])
    async with (
        Runtime(agent=agent, commands=Commands(sandbox="off")) as runtime,
        chat_in_process(runtime, columns=60) as chat,
    ):
        await chat.expect("/help 列出命令和按键")
        await chat.say("Build a boat.")
        await chat.expect("批准 Bash 吗？")
        await chat.expect("[y] 仅一次 · [s] 本会话 · [p] 本项目 · [u] 始终\n[e] 编辑规则")  # the line is full
        chat.send("y")
        await chat.expect("批准: Bash touch boat")
        await chat.expect("Aye.")
        await chat.say("/plan")
        await chat.expect("权限模式：plan")
        await chat.say("/sessions")
        await chat.expect("此项目的会话")
        chat.send("\x1b")


def test_a_text_is_shown_in_the_chosen_language_with_its_values() -> None:
    try:
        strings.use_language("zh")
        assert strings.translate("{folder} has settings of its own:", folder="{a}") == "{a} 有自己的设置："
        strings.use_language("en")
        assert strings.translate("{folder} has settings of its own:", folder="{a}") == "{a} has settings of its own:"
    finally:
        strings.use_language("")
