"""An executor plugin for Snakemake: each job of a workflow becomes a job of a Largesse cell."""

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

from largesse.client import Client, JobSpec, LargesseError, NotFound, Stage, Unavailable, Unreachable
from largesse.client.specs import new_name
from largesse.contexts import AccessWrong

STAGE = "run"
MEMORY_MB = 1_000
"""Of a job that does not say how much it needs."""
NAME_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """What the command line may say, as --largesse-NAME. Snakemake makes options of the types, and knows no `|`."""

    url: Optional[str] = field(default=None, metadata={"help": "The gateway; by default as `largesse` finds it"})
    context: Optional[str] = field(default=None, metadata={"help": "A context of the config file of `largesse`"})
    cell: Optional[str] = field(default=None, metadata={"help": "Which cell of a gateway that serves several"})
    queue: Optional[str] = field(default=None, metadata={"help": "The queue of all jobs; by default `default`"})
    retries: int = field(default=0, metadata={"help": "How often the cell tries a task again that failed"})


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=1,
)


class Executor(RemoteExecutor):
    """Submits jobs, looks at all of them with one question at a time, and cancels them."""

    def __post_init__(self) -> None:
        said = self.workflow.executor_settings
        try:
            self._cell = Client(said.url, context=said.context, cell=said.cell)
        except AccessWrong as fault:
            raise WorkflowError(f"largesse: {fault}") from None
        self._run = f"snakemake-{secrets.token_hex(4)}"

    def run_job(self, job: JobExecutorInterface) -> None:
        """Submits one job."""
        rule = NAME_UNSAFE.sub("_", job.name)
        resources = job.resources
        stage = Stage(
            stage=STAGE,
            tasks=1,
            demand=demand_of(job.threads, resources),
            command=["sh", "-c", self.format_job_exec(job)],
            cwd=str(Path.cwd()),
            retries=self.workflow.executor_settings.retries,
            timeout_ms=round(minutes * 60_000) if (minutes := resources.get("runtime")) else None,
        )
        spec = JobSpec(
            stages=[stage],
            queue=resources.get("largesse_queue") or self.workflow.executor_settings.queue,
            priority=resources.get("largesse_priority"),
        )
        try:
            name = self._cell.submit(spec, name=new_name(f"{self._run}-{rule}"))["job"]
        except LargesseError as why:
            info = SubmittedJobInfo(job)
            self.report_job_submission(info, register_job=False)
            self._forget(info)
            self.report_job_error(info, msg=f"largesse refused it: {why}. ")
            return
        self.report_job_submission(SubmittedJobInfo(job, external_jobid=name))

    def _forget(self, info: SubmittedJobInfo) -> None:
        with self.lock:
            self.active_jobs.remove(info)

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Reports jobs that have ended, and gives those that have not."""
        if not active_jobs:
            return
        try:
            found = await asyncio.to_thread(lambda: {each["job"]: each for each in self._cell.jobs(q=self._run)})
        except (Unavailable, Unreachable) as why:
            self.logger.warning(f"largesse: {why}; jobs go on, and are looked at again")
            found = None
        for info in active_jobs:
            job = None if found is None else found.get(info.external_jobid) or await self._asked(info)
            if job is None or job["ended_ms"] is None:
                yield info
            elif job["state"] == "succeeded":
                self.report_job_success(info)
            else:
                self.report_job_error(info, msg=f"{job['job']} {job['state']}: {job['detail']}. ")

    async def _asked(self, info: SubmittedJobInfo) -> dict[str, object] | None:
        """One job that is not in the list, as it is, or as one that is known no longer."""
        name = str(info.external_jobid)
        try:
            return dict(await asyncio.to_thread(self._cell.get, name))
        except NotFound:
            return {"job": name, "state": "failed", "ended_ms": 0, "detail": "the cell knows it no longer"}
        except LargesseError:
            return None

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancels jobs when the workflow is."""
        for info in active_jobs:
            try:
                self._cell.cancel(str(info.external_jobid))
            except LargesseError as why:
                self.logger.debug(f"largesse: {info.external_jobid}: {why}")


def demand_of(threads: int, resources: object) -> dict[str, str]:
    """What a task asks for, by threads and resources of a job."""
    get = resources.get  # type: ignore[attr-defined]
    if (mebibytes := get("mem_mib")) and not get("mem_mb"):
        memory = f"{mebibytes}Mi"
    else:
        memory = f"{get('mem_mb') or MEMORY_MB}M"
    gpus = get("gpu") or get("gpus")
    return {"cpu": str(threads), "memory": memory} | ({"gpu": str(gpus)} if gpus else {})
