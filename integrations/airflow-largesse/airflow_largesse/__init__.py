"""An Airflow operator that runs a job in a Largesse cell."""

import os
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException

from largesse.client import Client, LargesseError
from largesse.client.specs import NAME_DIGITS, JobLike, document_of

if TYPE_CHECKING:
    from airflow.sdk import Context


class LargesseOperator(BaseOperator):
    """Submits a job, waits until it has ended, and shows what its tasks printed. Its XCom is the job's name.

    `job`: a dictionary, a JobSpec or the path of a file, as `Client.submit` takes it; templates count in dictionaries
    and in `job_name`. The job's name follows from the try of the task, unless `job_name` says it: a worker that is
    started again in the same try goes on with the same job. `url`, `cell_context`, `cell`: which cell is asked.
    """

    template_fields = ("job", "job_name")
    ui_color: ClassVar[str] = "#d8e8d0"

    def __init__(
        self,
        *,
        job: JobLike,
        job_name: str | None = None,
        url: str | None = None,
        cell_context: str | None = None,
        cell: str | None = None,
        show_output: bool = True,
        **more: object,
    ) -> None:
        super().__init__(**more)
        self.job = str(job) if isinstance(job, str | os.PathLike) else document_of(job)
        self.job_name = job_name
        self.url, self.cell_context, self.cell = url, cell_context, cell
        self.show_output = show_output
        self._submitted: str | None = None

    def execute(self, context: "Context") -> str:
        """Raises AirflowException where the job has not succeeded, LargesseError where the cell refuses it."""
        name = self.job_name or name_of(context["ti"])
        with self._asked() as cell:
            self._submitted = name
            said = cell.submit(self.job, name=name)
            self.log.info("job %s: %s", name, said["state"])
            for warning in said["warnings"]:
                self.log.warning("%s", warning)
            last = cell.wait(name, check=False)
            self._submitted = None
            if self.show_output:
                for task, printed in cell.job_logs(name):
                    for line in printed.decode(errors="replace").splitlines():
                        self.log.info("%s: %s", task, line)
        if last["state"] != "succeeded":
            failures = [f"{each['stage']}/{each['index']}: {each['detail']}" for each in last["failures"][-3:]]
            raise AirflowException("; ".join([f"job {name} {last['state']}: {last['detail']}", *failures]))
        return name

    def on_kill(self) -> None:
        """Cancels the job when the task is ended."""
        if self._submitted is None:
            return
        try:
            with self._asked() as cell:
                cell.cancel(self._submitted)
        except LargesseError as why:
            self.log.warning("job %s is not cancelled: %s", self._submitted, why)

    def _asked(self) -> Client:
        return Client(self.url, context=self.cell_context, cell=self.cell)


def name_of(ti: object) -> str:
    """A job's name for one try of a task: the same whenever it is asked for. It ends in a number, so that the tries and
    runs of a task count as runs of one job."""
    parts = [str(getattr(ti, each)) for each in ("dag_id", "task_id")]
    of = [*parts, *(str(getattr(ti, each)) for each in ("run_id", "map_index", "try_number"))]
    number = int.from_bytes(sha256("\0".join(of).encode()).digest()[:16]) % 10**NAME_DIGITS
    return f"airflow-{parts[0]}-{parts[1]}"[:150] + f"-{number:0{NAME_DIGITS}d}"


__all__ = ["LargesseOperator", "name_of"]
