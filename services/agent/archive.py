"""Puts away what ended jobs left on a node, in the order of their ends. clearing.py does it, in its own process."""

import asyncio
from collections.abc import Callable, Iterable

from largesse.telemetry import logger
from services.agent.folders import live_name
from services.agent.local import mono_ms
from services.agent.runs import BATCH_RUNS, ClearingFailed, PutAway, Runs, put_away, runs_of_jobs
from services.agent.settings import NodeSettings

CLEAR_MS = 60_000
"""So often limits of age are checked where nothing ends, and what could not be put away is tried again."""


class Archive:
    """The runs of one node. `runs`: those that live, and those that wait to be put away. `log_ms`: the log's time now:
    a wall clock may jump ahead, log time does not. `put_away`: how it is done (runs.py).
    """

    def __init__(self, node: NodeSettings, log_ms: Callable[[], int], put_away: PutAway = put_away) -> None:
        self.runs = Runs()
        self._node, self._log_ms, self._put = node, log_ms, put_away
        self._logger = logger(service="agent", node=node.name)

    def behind(self, *, closed: bool) -> str:
        """Why no more tasks may be started: runs are put away more slowly than they come; empty: they are not.
        `closed`: the node takes no tasks already, and opens again at half the limit."""
        most = self._node.kept.behind_max
        if self.runs.behind > (most // 2 if closed else most):
            return f"more than {most} runs of ended jobs wait to be cleared away"
        return ""

    async def put_all_away(self) -> None:
        """Nothing of this node runs any more, and the log knows how everything ended."""
        self.runs.found(await asyncio.to_thread(runs_of_jobs, self._node.data), {})
        self.runs.waiting.extend(folder for folders in self.runs.folders.values() for folder in folders)
        while self.runs.waiting:
            await self._put_away()

    async def keep(self, live_runs: Callable[[], Iterable[tuple[str, int]]], progressed: Callable[[], None]) -> None:
        """Puts away whatever ends, for ever. `live_runs`: jobs that have not ended by what the log holds now;
        `progressed` is called after each batch."""
        folders = await asyncio.to_thread(runs_of_jobs, self._node.data)
        # Read after the folders: a run that has begun meanwhile is live.
        live = [live_name(job, run) for job, run in live_runs()]
        self.runs.found(folders, dict.fromkeys(live, True))
        due_ms = mono_ms()
        while True:
            due = mono_ms() >= due_ms
            if due:
                due_ms = mono_ms() + CLEAR_MS
                self.runs.try_again()
            if due or self.runs.waiting:
                await self._put_away()
                progressed()
            if len(self.runs.waiting) < BATCH_RUNS:
                # A process costs more than what it does for a few runs: those wait for more.
                await asyncio.sleep(self._node.clear_ms / 1_000)

    async def _put_away(self) -> None:
        """Puts away the next batch, and removes what is beyond the limits."""
        names = self.runs.take()
        try:
            self.runs.put_away((await self._put(self._node.data, names, self._node.kept, self._log_ms()))["failed"])
        except ClearingFailed as error:
            self.runs.put_away(names)
            self._logger.warning("cannot clear away what ended jobs left", error=str(error))
