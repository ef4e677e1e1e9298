"""Answers about what is free, as models; see cell.py."""

from typing import Annotated

from pydantic import BaseModel, Field

from services.gateway.documents.models.cell import At, Count, Ms, Quantities


class RoomForClass(BaseModel):
    """Tasks alike that wait, `tasks` in `jobs` jobs, one of them `job`. `fits`: for how many such tasks there is room,
    were all of it theirs, on `nodes` nodes; `in_one`: for how many there would be, were all that is free on one node;
    `usable`: what as many as fit would hold. `queues`: those with most of the tasks."""

    demand: Quantities
    labels: dict[str, str]
    gang: Annotated[Count | None, Field(description="of a gang, how many tasks start together")]
    tasks: Count
    jobs: Count
    job: str
    queues: list[str]
    queues_left_out: Count
    fits: Count
    nodes: Count
    in_one: Count
    usable: Quantities


class Room(BaseModel):
    """As of record `seq`. `free`: of nodes that take tasks; `classes`: at most 30, those of most tasks."""

    seq: Count
    time_ms: Ms
    free: Quantities
    classes: list[RoomForClass]
    classes_left_out: Count
    at: At = None
