"""Which results a node may ask for: those that were handed on to attempts that it holds, of whom the log names.

Pure. What a stage has handed on is looked up by task, since a node asks for each of them, and for some many times.
"""

from largesse.lifecycle.handed import Handed
from largesse.lifecycle.node_work import State, stage_of
from largesse.task_results import WantedResults

STAGES_MAX = 64
"""Stages for which it is remembered who has the results of each task; for others it is found out again."""

_Places = dict[tuple[int, int, int], str]
"""Of each task's index, attempt and run: the node that has what it left."""


class HandedOn:
    """Looks up what `state` says, for any node."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, int, str], tuple[int, _Places]] = {}

    def is_for(self, state: State, node: str, of: str, wanted: WantedResults) -> bool:
        """Whether an attempt that `node` holds was handed these results of a task that ran on node `of`."""
        work, job = state.nodes.get(node), state.jobs.get(wanted.job)
        if work is None or job is None or wanted.attempt is None or wanted.admitted is None:
            return False
        needed: dict[str, bool] = {}
        for key in work.held_of.get(wanted.job, ()):
            held = work.held[key]
            if held.run == job.run and held.stop is None and held.stage not in needed:
                needed[held.stage] = wanted.stage in stage_of(job, held.stage).inputs
                if needed[held.stage]:
                    places = self._places_of(wanted.job, job.run, wanted.stage, job.handed[wanted.stage])
                    return places.get((wanted.index, wanted.attempt, wanted.admitted)) == of
        return False

    def _places_of(self, job: str, run: int, stage: str, handed: list[Handed]) -> _Places:
        size, places = self._places.pop((job, run, stage), (0, {}))
        for tasks in handed[size:]:  # It only grows.
            for index in range(tasks.first, tasks.first + tasks.count):
                places[index, tasks.attempt, tasks.run or run] = tasks.node
        self._places[job, run, stage] = len(handed), places
        if len(self._places) > STAGES_MAX:
            del self._places[next(iter(self._places))]
        return places
