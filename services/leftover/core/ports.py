"""Ports for tasks of gangs: each has one of its own on its host, where the others reach it.

Which one follows from the log alone: nobody asks a machine whether it is free. The tasks of an attempt have ports in a
row, each attempt those behind the attempt before, so that it does not meet what that has left; ports that other gangs'
tasks have on the host, on whichever of its nodes, are passed over. Where a row begins is drawn, so that two cells on
one machine are unlikely to meet.
"""

from largesse.ids import draw
from schemas import Grant
from services.leftover.core.board import stage_of
from services.leftover.core.state import Node, State


def give_ports(state: State, grants: list[Grant]) -> None:
    """Says in grants of a round which ports gangs' tasks have, on nodes that offer some. Where too few of a node are
    left, none of a grant has one.
    """
    taken: dict[str, dict[int, bool]] = {}
    for grant in grants:
        node, job = state.nodes[grant.node], state.jobs[grant.job]
        stage = stage_of(job, grant.stage)
        if not stage.gang or not node.port_last:
            continue
        host = host_of(grant.node, node)
        if host not in taken:
            taken[host] = _held_on(state, host)
        row = draw(state.policy.seed, job.admitted, "ports", f"{grant.job}/{grant.stage}") % (1 << 32)
        grant.ports = _free_ports(node, taken[host], row + grant.attempt * stage.tasks + grant.first, grant.count)


def host_of(name: str, node: Node) -> str:
    """Where tasks on a node are reached: by its name, where its agent does not say."""
    return node.host or name


def _held_on(state: State, host: str) -> dict[int, bool]:
    """The ports that tasks have on a host, on all of its nodes."""
    held: dict[int, bool] = {}
    for name, node in state.nodes.items():
        if host_of(name, node) == host:
            for each in state.held.get(name, {}).values():
                if each.port:
                    held[each.port] = True
    return held


def _free_ports(node: Node, taken: dict[int, bool], begin: int, count: int) -> list[int]:
    """So many ports of a node that are not taken, the first from a place in its row on; they are from now on."""
    size = node.port_last - node.port_first + 1
    if size - sum([node.port_first <= port <= node.port_last for port in taken]) < count:
        return []
    found: list[int] = []
    while len(found) < count:
        port = node.port_first + begin % size
        begin += 1
        if port not in taken:
            taken[port] = True
            found.append(port)
    return found
