"""The keys by which cores keep what they know of tasks: "job/stage/index" in a cell, "stage/index" in a job, and
"position/index" where a stage is named by its position. No name contains a slash.
"""


def task_key(job: str, stage: str, index: int) -> str:
    """Names one task of a cell."""
    return f"{job}/{stage}/{index}"


def parts_of(key: str) -> tuple[str, str, int]:
    """Job, stage and index of a task of a cell."""
    job, stage, index = key.split("/")
    return job, stage, int(index)


def job_of(key: str) -> str:
    """The job of a task of a cell, or of a stage as "job/stage"."""
    return key.partition("/")[0]


def in_job(key: str) -> str:
    """A task of a cell as its job names it; of "job/stage" the stage."""
    return key.partition("/")[2]


def stage_in(task: str) -> str:
    """The stage of a task of a job."""
    return task.partition("/")[0]


def position_of(task: str) -> int:
    """The position of the stage of a task that is named by it."""
    return int(task.partition("/")[0])


def index_of(key: str) -> int:
    """The index of a task, however it is named."""
    return int(key.rpartition("/")[2])
