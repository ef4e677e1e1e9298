"""What the gateway says of a node on which attempts of several jobs fail in a row."""

import asyncio

from largesse.lifecycle.failing_nodes import FAILING_MS
from schemas import NodeRegistered
from services.cli.getting import node_row
from services.gateway.documents.metrics import CellMetrics
from services.gateway.documents.nodes import node_document
from tests.gateway_watch import Watched, stage

JOBS = ["a", "b", "c", "d"]


def watched():
    """A cell of two nodes, on the first of which a job each fails."""
    cell = Watched(nodes=2)
    for name in JOBS:
        cell.submit(name, stage(retries=0))
        ((at,),) = cell.view.jobs[name].places
        assert at == "n0" or name == "d"
        cell.fail(name, "s", node=at)
    return cell


def failing(cell, name="n0"):
    return node_document(cell.view, name)["failing"]


def test_it_says_of_which_jobs_and_until_when_and_counts_the_node():
    cell = watched()
    assert failing(cell) == {"jobs": JOBS[:3], "until_ms": cell.cell.time + FAILING_MS}
    assert failing(cell, "n1") is None
    assert b"largesse_nodes_failing 1.0" in asyncio.run(CellMetrics().exposition(cell.view))

    text = node_row(node_document(cell.view, "n0"))[-1]
    assert "placed last until" in text
    assert text.endswith("tasks of a, b, c failed there in a row")


def test_the_view_and_the_core_that_places_keep_the_same():
    cell = watched()
    assert cell.view.failures == cell.cell.leftover.failures
    cell.settle(after_ms=FAILING_MS - 1).submit("early", stage())
    assert cell.view.failures == cell.cell.leftover.failures
    assert failing(cell) is not None
    cell.settle(after_ms=1).submit("later", stage())
    assert failing(cell) is None
    assert cell.view.failures == cell.cell.leftover.failures == {}


def test_a_success_or_a_new_agent_ends_it():
    cell = watched()
    cell.take(NodeRegistered("n1", "e1", {"cpu": 1_000})).settle()
    cell.submit("wide", stage(cpu=2)).finish("wide", "s")
    assert failing(cell) is None

    cell = watched().take(NodeRegistered("n0", "e2", {"cpu": 4_000})).settle()
    assert failing(cell) is None


def test_many_jobs_are_counted():
    node = node_document(watched().view, "n0")
    node["failing"]["jobs"] = [f"j{i}" for i in range(9)]
    assert node_row(node)[-1].endswith("tasks of j6, j7, j8 and 6 more failed there in a row")
