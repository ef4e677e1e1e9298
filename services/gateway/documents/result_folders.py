"""Where the results of a job lie that were written into the folders in which its tasks were started, and until when."""

from typing import Any

from largesse.task_output import folder_name
from services.gateway.view.jobs import EndedJob, LiveJob
from services.gateway.view.state import State

RESULTS_NODES_MAX = 20
"""So many nodes are named of a job."""
LIVE, ENDED = "jobs", "ended/*"
"""Where an agent keeps runs of jobs that have not ended, and of those that have (services/agent/folders.py)."""


def results_of(state: State, name: str) -> list[dict[str, Any]]:
    """By node on which tasks of a job were placed last, in order of their stages: a pattern of the folder, and until
    when it stays at the latest, None while the job lives. Nodes that are unknown or do not tell are left out.
    """
    live = state.jobs.get(name)
    ended = state.ended.get(name)
    job = live or ended
    if job is None or (ended is not None and ended.outcome == "rejected"):
        return []
    places = live.places if live is not None else state.places.get(name, [])
    found: list[dict[str, Any]] = []
    kept = job.kept
    ran = [stage for at, stage in enumerate(places) if at not in kept]  # Else another run's folder has them.
    for node in list(dict.fromkeys(place for stage in ran for place in stage if place)):
        row = state.nodes.get(node)
        if len(found) < RESULTS_NODES_MAX and row is not None and row.results is not None:
            found.append(_result(row.results.folder, row.results.age_ms, node, name, job))
    return found


def _result(folder: str, age_ms: int, node: str, name: str, job: LiveJob | EndedJob) -> dict[str, Any]:
    ended = isinstance(job, EndedJob)
    where = f"{folder}/{ENDED if ended else LIVE}/{folder_name(name)}/{job.admitted}-*"
    return {"node": node, "folder": where, "until_ms": job.ended_ms + age_ms if isinstance(job, EndedJob) else None}
