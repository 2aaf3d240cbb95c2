"""Estimates of the tokens of a prompt before it is sent. The estimates of earlier messages are kept."""

from vaka.core.ports.model import Prompt
from vaka.core.types.message import Message
from vaka.core.types.tokens import (
    encode_json,
    estimate_message_tokens,
    estimate_text_tokens,
    text_size,
    tokens_of_message,
)
from vaka.core.types.tool import ToolSpec
from vaka.models.prefixes import PrefixMemo
from vaka.models.tool_lists import ToolListMemo


def estimate_prompt_tokens(prompt: Prompt) -> int:
    return estimate_message_tokens(prompt.messages) + estimate_instruction_tokens(prompt)


def estimate_instruction_tokens(prompt: Prompt) -> int:
    """Return the tokens of a prompt without its messages."""
    return estimate_text_tokens(text_size(prompt.system)) + CountedTools(prompt.tools).tokens


class CountedTools:
    """The hash of a list of tools, and its tokens."""

    def __init__(self, tools: tuple[ToolSpec, ...]) -> None:
        encoded = [encode_json(tool) for tool in tools]
        self.hash = hash(tuple(encoded))
        self.tokens = sum(estimate_text_tokens(len(data)) for data in encoded)


class TokenTotals:
    """The tokens of the first messages of a conversation, for each number of messages."""

    def __init__(self) -> None:
        self.totals = [0]

    def add(self, message: Message) -> None:
        self.totals.append(self.totals[-1] + tokens_of_message(message))

    def mark(self) -> int:
        return len(self.totals)

    def rollback(self, mark: int) -> None:
        del self.totals[mark:]

    def settle(self, mark: int) -> None:
        pass


class TokenCounter:
    """Estimates the tokens of prompts; each message of a conversation is counted once."""

    def __init__(self) -> None:
        self._counted = PrefixMemo(TokenTotals)
        self._tools: ToolListMemo[CountedTools] = ToolListMemo()

    def count(self, prompt: Prompt) -> int:
        """Return ``estimate_prompt_tokens(prompt)``."""
        kept = self._counted.take(prompt)
        tokens = kept.fold.totals[-1]
        self._counted.put(prompt, kept)
        tools = self._tools.get(prompt.tools, CountedTools)
        return tokens + estimate_text_tokens(text_size(prompt.system)) + tools.tokens
