"""What the gateway says of a cell as a whole: how much there is, its config, and how far the log is read."""

from collections import Counter
from dataclasses import asdict

from schemas.edge.queues import tree_document
from services.gateway.documents import Document
from services.gateway.documents.jobs import state_of_live
from services.gateway.documents.nodes import state_of_node
from services.gateway.view.state import State


def counts(state: State) -> tuple[dict[str, int], dict[str, int]]:
    """How many jobs and how many nodes there are, by state. Looks at all of them; for metrics there is `Tally`."""
    jobs = Counter(state_of_live(job) for job in state.jobs.values())
    jobs.update(job.outcome for job in state.ended.values())
    return dict(jobs), dict(Counter(state_of_node(node) for node in state.nodes.values()))


def config_document(state: State) -> Document:
    """Knobs and tree in force, as `PUT /v1/config` takes them back."""
    queues = None if state.queues is None else tree_document(state.queues)
    return {"set": asdict(state.policy), "queues": queues}


def standing_document(state: State) -> Document:
    """How far the view has read the log."""
    return {"cell": state.cell, "seq": state.seq, "round": state.round, "time": state.time}
