"""Back up a store to a file, and restore it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path

from vaka.core.ports.backup import BackupCounts, BackupRecord, StoreBackup
from vaka.core.ports.env import format_timestamp
from vaka.core.types.errors import Corrupt
from vaka.stores.backup_file import BackupHeader, BackupReader, BackupWriter

_BATCH = 256
"""Records after which the progress is reported."""


async def write_backup(
    source: StoreBackup,
    path: Path,
    *,
    now: float,
    version: str,
    overwrite: bool,
    progress: Callable[[BackupCounts], None],
) -> BackupCounts:
    """Write a backup of a store, as it is now, to a file; others may write the store meanwhile.

    The file gets its name when it is complete and on the disk. The header records
    ``version``, the version of vaka. Raises ``AlreadyExists`` if the file exists, unless ``overwrite``.
    """
    header = BackupHeader(made=format_timestamp(now), vaka=version, store=source.url.partition(":")[0])
    writer = await asyncio.to_thread(BackupWriter, path, header, overwrite=overwrite)
    try:
        async with aclosing(source.dump()) as records:
            batch: list[BackupRecord] = []
            async for record in records:
                batch.append(record)
                if len(batch) >= _BATCH or writer.is_large(record):
                    await asyncio.to_thread(writer.add_all, batch)
                    batch = []
                    progress(writer.counts)
        await asyncio.to_thread(writer.add_all, batch)
        await asyncio.to_thread(writer.finish)
    finally:
        writer.discard()
    return writer.counts


async def restore_backup(
    target: StoreBackup, path: Path, *, replace: bool, progress: Callable[[BackupCounts], None]
) -> BackupCounts:
    """Restore a backup into an empty store, all of it or nothing; return what the store has then.

    Raises as ``StoreBackup.load`` does, and ``Corrupt`` or ``InvalidInput`` for a file that is damaged or no backup.
    """
    reader = BackupReader(path)
    header, expected = await asyncio.to_thread(reader.verify)
    counts = BackupCounts()

    async def count_records() -> AsyncGenerator[BackupRecord]:
        async with aclosing(reader.read()) as records:
            number = 0
            async for record in records:
                counts.add(record)
                number += 1
                if number % _BATCH == 0:
                    progress(counts)
                yield record
        if counts != expected:
            raise Corrupt(f"the backup {str(path)!r} is damaged: it has {counts}, expected {expected}")

    async with aclosing(count_records()) as records:
        return await target.load(records, made=header.made, replace=replace)
