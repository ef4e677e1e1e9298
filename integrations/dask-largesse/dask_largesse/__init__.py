"""Dask clusters whose workers run in a Largesse cell."""

import secrets
import sys
from collections.abc import Mapping
from dataclasses import replace

from distributed import Scheduler
from distributed.core import Status
from distributed.deploy.spec import ProcessInterface, SpecCluster

from largesse.client import AsyncClient, JobSpec, LargesseError, Stage
from largesse.client.specs import new_name

DEATH_TIMEOUT_S = 60
"""A worker that does not reach its scheduler for so long ends by itself."""
UNITS = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def bytes_of(memory: object) -> int:
    """A quantity of memory in bytes; 0 where there is none, which Dask takes for no limit."""
    text = str(memory or "0")
    unit = text.lstrip("0123456789.")
    return int(float(text.removesuffix(unit)) * UNITS.get(unit, 1))


class LargesseWorker(ProcessInterface):
    """One worker: a job of one task. `where`: arguments of AsyncClient."""

    def __init__(
        self,
        scheduler: str,
        name: object = None,
        *,
        prefix: str,
        where: Mapping[str, str | None],
        stage: Stage,
        job: JobSpec,
        threads: int,
        python: str,
        **more: object,
    ) -> None:
        super().__init__(scheduler=scheduler, name=name)
        command = [python, "-m", "distributed.cli.dask_worker", scheduler, "--name", str(name), "--no-nanny"]
        command += ["--nthreads", str(threads), "--memory-limit", str(bytes_of(stage.demand.get("memory")))]
        command += ["--no-dashboard", "--death-timeout", str(DEATH_TIMEOUT_S)]
        self._spec = replace(job, stages=(replace(stage, stage="worker", tasks=1, command=command),))
        self._where = where
        self.job = new_name(f"{prefix}-{name}")

    async def start(self) -> None:
        """Submits the job; the worker comes once it has room."""
        async with AsyncClient(**self._where) as cell:
            await cell.submit(self._spec, name=self.job)
        await super().start()

    async def close(self) -> None:
        """Cancels the job, unless it has ended."""
        if self.status == Status.running:
            async with AsyncClient(**self._where) as cell:
                try:
                    await cell.cancel(self.job)
                except LargesseError as why:
                    if why.kind not in ("refused:ended", "unknown_job"):
                        raise
        await super().close()


class LargesseCluster(SpecCluster):
    """A Dask cluster in a cell. `demand`, `threads`: of each worker. `stage`, `job`: what else its job says. `host`,
    `dashboard_address`: of the scheduler, in this process. `python`: the interpreter on the nodes."""

    def __init__(
        self,
        n_workers: int = 0,
        *,
        demand: Mapping[str, str | int | float] | None = None,
        threads: int = 1,
        retries: int = 3,
        stage: Stage | None = None,
        job: JobSpec | None = None,
        python: str = sys.executable,
        host: str | None = None,
        dashboard_address: str | None = None,
        url: str | None = None,
        context: str | None = None,
        cell: str | None = None,
        user: str | None = None,
        **more: object,
    ) -> None:
        asked = demand or {"cpu": str(threads), "memory": "1Gi"}
        base = stage or Stage(stage="worker", demand=asked)
        options = {
            "prefix": f"dask-worker-{secrets.token_hex(4)}",
            "where": {"url": url, "context": context, "cell": cell, "user": user},
            "stage": replace(base, demand=asked, retries=base.retries if base.retries is not None else retries),
            "job": job or JobSpec(),
            "threads": threads,
            "python": python,
        }
        scheduler = {"host": host, "dashboard": dashboard_address is not None, "dashboard_address": dashboard_address}
        super().__init__(
            scheduler={"cls": Scheduler, "options": scheduler},
            worker={"cls": LargesseWorker, "options": options},
            **more,
        )
        self.prefix = options["prefix"]
        if n_workers:
            self.scale(n_workers)
