"""The tools of the conformance suite that are vaka's own: they are called through a runtime, as those of agents."""

import base64
from typing import Any

import vaka
from vaka.core.types.message import Audio, Document, Image, Text

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WAV = base64.b64encode(b"RIFF$\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0@\x1f\0\0\x80>\0\0\2\0\x10\0data\0\0\0\0").decode()


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@vaka.tool(effect="read")
def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@vaka.tool(effect="read")
def test_image_content() -> Image:
    """Return a picture."""
    return Image(media_type="image/png", data=PNG)


@vaka.tool(effect="read")
def test_audio_content() -> Audio:
    """Return a sound."""
    return Audio(media_type="audio/wav", data=WAV)


@vaka.tool(effect="read")
def test_embedded_resource() -> Document:
    """Return a document."""
    text = "This is an embedded resource content."
    return Document(media_type="text/plain", data=encode(text), name="test://embedded-resource")


@vaka.tool(effect="read")
def test_multiple_content_types() -> list[Any]:
    """Return parts of several kinds."""
    return [
        Text(text="Multiple content types test:"),
        Image(media_type="image/png", data=PNG),
        Document(
            media_type="application/json",
            data=encode('{"test":"data","value":123}'),
            name="test://mixed-content-resource",
        ),
    ]


@vaka.tool(effect="read")
def test_error_handling() -> str:
    """Fail."""
    raise ValueError("This tool intentionally returns an error for testing")


@vaka.tool(effect="read")
async def test_tool_with_progress(context: vaka.ToolContext) -> str:
    """Report progress."""
    for percent in (0, 50, 100):
        context.emit(f"{percent} of 100\n")
    return "Tool with progress executed."


@vaka.tool(effect="read")
async def test_streaming_elicitation(context: vaka.ToolContext) -> str:
    """Ask a person."""
    return f"The answer is {await context.ask('Which colour?')}"


@vaka.tool(effect="read")
def test_logging_tool() -> str:
    """Log nothing."""
    return "Nothing was logged."


TOOLS = (
    test_simple_text,
    test_image_content,
    test_audio_content,
    test_embedded_resource,
    test_multiple_content_types,
    test_error_handling,
    test_tool_with_progress,
    test_streaming_elicitation,
    test_logging_tool,
)
