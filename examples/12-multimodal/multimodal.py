"""A picture and a document with a question; the stand-in provider answers from the request it received."""

import argparse
import asyncio
import base64
import os
import struct
import zlib
from typing import Any

import vaka
from vaka.content import Document, Image, Part, Text
from vaka.models import Account, OpenAIChat
from vaka.testing.fake_provider import FakeProvider, ProviderRequest
from vaka.testing.models import ScriptLine, say

QUESTION = "Which colour has the picture, and when does the document say we sail?"
SIZE = 8


def png(red: int, green: int, blue: int) -> bytes:
    """Return a small picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = b"\0" + bytes((red, green, blue)) * SIZE
    head = struct.pack(">IIBBBBB", SIZE, SIZE, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(row * SIZE)) + chunk(b"IEND", b"")


def pdf(text: str) -> bytes:
    """Return a document of one page with one line."""
    line = f"BT /F1 24 Tf 72 720 Td ({text}) Tj ET".encode()
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources 6 0 R >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(line), line),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Font << /F1 5 0 R >> >>",
    )
    made, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        places.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    count = len(objects) + 1
    end = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (count, len(made))
    return made + b"xref\n0 %d\n0000000000 65535 f \n" % count + table + end


def question() -> list[Part]:
    """Return the parts of one message, in order."""
    picture, plan = png(200, 30, 30), pdf("We sail on Friday at 06:00.")
    return [
        Image(media_type="image/png", data=base64.b64encode(picture).decode()),
        Document(media_type="application/pdf", data=base64.b64encode(plan).decode(), name="plan.pdf"),
        Text(text=QUESTION),
    ]


def look(request: ProviderRequest) -> ScriptLine:
    """Answer as a provider with vision would, from the request alone."""
    parts: list[dict[str, Any]] = request.body["messages"][-1]["content"]
    kinds = [part["type"] for part in parts]
    picture, plan = (
        base64.b64decode(address.partition(",")[2])
        for address in (parts[0]["image_url"]["url"], parts[1]["file"]["file_data"])
    )
    pixel = zlib.decompress(picture[41:-16])[1:4]  # between the header chunks and the checksums
    words = plan.partition(b"Td (")[2].partition(b")")[0].decode()
    return say(f"I was sent {', '.join(kinds)}. The picture is {tuple(pixel)}; the document says: {words}")


async def ask(model: "OpenAIChat | str") -> str:
    """Ask a model; the question is the same for all of them."""
    agent = vaka.Agent("reader", model=model, instructions="Answer in one sentence.")
    async with vaka.Runtime() as runtime:
        session = await runtime.open(agent)
        return (await session.run(question())).text


async def main(model: str) -> None:
    """Ask the model that was named, or the stand-in."""
    print(f"> a picture, a document, and: {QUESTION}")
    if model:
        print(await ask(model))
        return
    async with FakeProvider(look) as provider:
        stand_in = OpenAIChat("stand-in", Account(base_url=f"{provider.url}/v1"))
        print(await ask(stand_in))
        await stand_in.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=os.environ.get("VAKA_MODEL", ""), help="a real one, such as gemini/NAME")
    asyncio.run(main(parser.parse_args().model))
