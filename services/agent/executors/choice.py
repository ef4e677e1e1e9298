"""Which executors there are, and which one runs what."""

from schemas import Stage
from services.agent.executors.container import CONTAINER, ContainerExecutor
from services.agent.executors.port import Executor
from services.agent.executors.process import PROCESS, ProcessExecutor
from services.agent.executors.timed import TIMED, TimedExecutor
from services.agent.found import Task
from services.agent.settings import NodeSettings


def executors_of(settings: NodeSettings, hold: str | None) -> dict[str, Executor]:
    """All of one node, by kind. `hold`: the file that says how long tasks may run on (lease_file.py); None: without
    end. Raises OSError.
    """
    return {
        PROCESS: ProcessExecutor(settings, hold),
        TIMED: TimedExecutor(settings),
        CONTAINER: ContainerExecutor(settings, hold),
    }


def kind_of(stage: Stage) -> str:
    """What is to run the tasks of a stage."""
    if stage.container is not None:
        return CONTAINER
    return PROCESS if stage.command else TIMED


def kind_in(task: Task) -> str:
    """What was to run an attempt, by what it has written at the start."""
    if "container" in task.document:
        return CONTAINER
    return TIMED if "run_ms" in task.document else PROCESS
