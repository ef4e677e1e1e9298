"""`largesse up --archive STORE`: `largesse archive keep` beside the cell, a process of its own at the least priority.

It ends with the cell, also where that is killed. Where it ends by itself it is started again; the cell runs on.
"""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from largesse.archive.store import FolderStore, StoreUrlWrong, open_store
from largesse.telemetry import logger
from largesse.waiting import is_set_within
from services.cli.ending import Wrong
from services.planner.lifeline import lifeline

AGAIN_S = 30.0
END_S = 7.0

_ROOT = Path(__file__).parents[2]


def store_of(url: str) -> str:
    """The store that `--archive` names, wherever one reads that. Raises Wrong."""
    try:
        store = open_store(url)
    except StoreUrlWrong as error:
        raise Wrong(f"--archive: {error}") from None
    return str(Path(store.url).absolute()) if isinstance(store, FolderStore) else store.url


async def keep_archive(store: str, data: Path, url: str, stop: asyncio.Event) -> None:
    """Until `stop`. `url`: the cell's gateway, which notes checkpoints."""
    words = ("archive", "keep", store, "--log", str(data), "--url", url)
    while not stop.is_set():
        with lifeline() as (read, environment):
            running = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "services.cli.main", *words),
                cwd=_ROOT,
                env=environment,
                stdout=sys.stderr.fileno(),
                pass_fds=(read,),
                start_new_session=True,
            )
            code = await _ended(running, stop)
        if code is not None:
            logger(service="archive").warning("ended", code=code, again_after_s=AGAIN_S)
            await is_set_within(stop, AGAIN_S)


async def _ended(running: asyncio.subprocess.Process, stop: asyncio.Event) -> int | None:
    """Its exit code; None where it was told to end with the cell."""
    ended, stopped = asyncio.ensure_future(running.wait()), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((ended, stopped), return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            return ended.result()
        with suppress(ProcessLookupError):
            running.terminate()
        await asyncio.wait((ended,), timeout=END_S)
        return None
    finally:
        ended.cancel()
        stopped.cancel()
