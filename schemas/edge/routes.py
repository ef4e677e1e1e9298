"""The router's jobs: job specs that name no cell, and cancellations of such jobs."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from schemas.edge.base import Malformed, Name
from schemas.edge.jobs import JobSubmission, read_job, spec_of
from schemas.edge.validated import validated
from schemas.jobs import JobCancelled, JobSpec

CELLS_MAX = 1_000


class RouteSubmission(JobSubmission):
    """A job spec for the router, which chooses the cell. `cells`: those that it may go to; left out: all."""

    cells: Annotated[list[Name], Field(max_length=CELLS_MAX)] = []


@dataclass(slots=True)
class AskedRoute:
    """A job that names no cell. `cells`: those that it may go to; empty: all."""

    spec: JobSpec
    cells: list[str]


def read_route(document: object, author: str) -> AskedRoute | JobCancelled:
    """A message of the router's jobs topic. Raises Malformed."""
    if isinstance(document, dict) and "cancel" in document:
        cancelled = read_job(document, author)
        assert isinstance(cancelled, JobCancelled)
        return cancelled
    for form in ("change", "route"):
        if isinstance(document, dict) and form in document:
            raise Malformed(form, "is for a cell: publish it to the jobs of the one that has the job")
    asked = validated(RouteSubmission, document)
    if asked.rerun or asked.from_stage is not None:
        raise Malformed("rerun", "a job runs again in the cell that it has run in: publish it to the jobs of that cell")
    return AskedRoute(spec_of(asked), list(asked.cells))
