"""System prompts and tool menus as blobs: stored once for all sessions of a process, as long as they are there."""

from collections.abc import Sequence

from vaka.core.messages.blobs import DigestedText, put_blob
from vaka.core.session.log import Log
from vaka.core.session.redaction import Secrets
from vaka.core.types.ids import Digest


async def store_prompt_texts(log: Log, texts: Sequence[DigestedText], stored: set[Digest | None]) -> list[DigestedText]:
    """Store texts as blobs unless ``stored`` has their digests; return them as the log may name them: redacted.

    What another session has stored may have been erased with it, and is then stored again.
    """
    found = [_redact_text(log.secrets, text) for text in texts]
    held, blobs = log.window.held_texts, log.store.blobs
    shared = {text.digest for text in found if text.digest and text.digest in stored} - held
    missing = await blobs.find_missing(shared) if shared else set[Digest]()
    for text in found:
        digest = text.digest
        if digest not in held and (digest in missing or digest not in stored):
            held.add(await put_blob(log, text.text.encode()))
            stored.add(digest)
    return found


async def confirm_prompt_texts(log: Log, texts: Sequence[DigestedText]) -> None:
    """Store texts again that were erased with another session before the log named them; from now on they stay."""
    held = log.window.held_texts
    unsure = {text.digest for text in texts if text.digest} - held
    if unsure:
        missing = await log.store.blobs.find_missing(unsure)
        for text in texts:
            if text.digest in missing:
                await put_blob(log, text.text.encode())
        held |= unsure


def _redact_text(secrets: Secrets, text: DigestedText) -> DigestedText:
    if not secrets.is_active or text.digest in secrets.clean_digests:
        return text
    redacted = DigestedText(secrets.redact_data(text.text))
    if redacted.digest == text.digest:
        secrets.clean_digests.add(text.digest)
    return redacted
