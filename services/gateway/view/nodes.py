"""What the gateway's view learns of nodes."""

from schemas import (
    NodeDrained,
    NodeLost,
    NodeRegistered,
    NodeReported,
    Record,
)
from schemas.nodes import devices_of, out_of
from services.gateway.view.state import EVERY, DrainRow, NodeRow, State, note, touch
from services.gateway.view.tasks import fold_tasks


# ---------------------------------------------------------------- nodes
def fold_registered(state: State, record: Record) -> None:
    body: NodeRegistered = record.body
    before = state.nodes.get(body.node)
    if before is None or before.results != body.results:
        note(state, EVERY, "jobs")  # Where their results are kept.
    _set_node(state, body)
    fold_tasks(state, record)
    if before is not None and before.epoch != body.epoch:
        state.failures.pop(body.node, None)


def fold_reported(state: State, record: Record) -> None:
    _set_node(state, record.body)


def _set_node(state: State, body: NodeRegistered | NodeReported) -> None:
    before = state.nodes.get(body.node)
    devices = devices_of(body.capacity, body.devices)
    node = NodeRow(body.epoch, body.capacity, body.labels, devices, body.author, unschedulable=body.unschedulable)
    node.out = out_of(body.devices)
    if before is not None:
        node.used, node.holds, node.draining, node.drain = before.used, before.holds, before.draining, before.drain
        node.address, node.results = before.address, before.results
    if isinstance(body, NodeRegistered):
        node.address, node.results = body.address, body.results
    state.nodes[body.node] = node
    touch(state, node=body.node)


def fold_drained(state: State, record: Record) -> None:
    body: NodeDrained = record.body
    node = state.nodes[body.node]
    node.draining, node.drain = body.draining, DrainRow(body.author, body.reason, record.time, body.within_ms)
    touch(state, node=body.node)


def fold_lost(state: State, record: Record) -> None:
    body: NodeLost = record.body
    node = state.nodes[body.node]
    node.lost, node.left = True, body.left
    touch(state, node=body.node)
    fold_tasks(state, record)


def fold_forgotten(state: State, record: Record) -> None:
    if state.nodes.pop(record.body.node).results is not None:
        note(state, EVERY, "jobs")
    state.failures.pop(record.body.node, None)
    touch(state, node=record.body.node)
