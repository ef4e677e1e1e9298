"""Ports for tasks of gangs: each has one of its own on its host, where the others reach it.

Which one follows from the log alone: nobody asks a machine whether it is free. The tasks of an attempt have ports in a
row, each attempt those behind the attempt before, so that it does not meet what that has left; ports that other gangs'
tasks have on the host, on whichever of its nodes, are passed over. Where a row begins is drawn, so that two cells on
one machine are unlikely to meet.
"""

from collections.abc import Iterable

from largesse.ids import draw
from schemas import GangPorts, Grant, Stage
from services.admission.core.state import NodeState, State


def ports_of(state: State, grants: list[Grant]) -> list[GangPorts]:
    """The ports of gangs' tasks that are granted, by grant, on nodes that offer some. Where too few of a node are left,
    no task of a grant has one.
    """
    offered = [grant for grant in grants if state.nodes[grant.node].port_last and _stage_of(state, grant).gang]
    if not offered:
        return []
    taken = _held(state, dict.fromkeys(_host_of(grant.node, state.nodes[grant.node]) for grant in offered))
    found: list[GangPorts] = []
    for grant in offered:
        job, stage, node = state.jobs[grant.job], _stage_of(state, grant), state.nodes[grant.node]
        row = draw(state.policy.seed, job.seq, "ports", f"{grant.job}/{grant.stage}") % (1 << 32)
        first = row + grant.attempt * stage.tasks + grant.first
        ports = _free_ports(node, taken[_host_of(grant.node, node)], first, grant.count)
        if ports:
            found.append(GangPorts(grant.job, grant.stage, grant.first, ports))
    return found


def hold_ports(state: State, ports: list[GangPorts], grants: list[Grant]) -> None:
    """A round is closed: its tasks have these ports until they end."""
    nodes = {(grant.job, grant.stage, grant.first): grant.node for grant in grants}
    for each in ports:
        holds = state.nodes[nodes[each.job, each.stage, each.first]].holds
        for index, port in enumerate(each.ports, each.first):
            holds[f"{each.job}/{each.stage}/{index}"].port = port


def _host_of(name: str, node: NodeState) -> str:
    """Where tasks on a node are reached: by its name, where its agent does not say."""
    return node.host or name


def _stage_of(state: State, grant: Grant) -> Stage:
    graph = state.jobs[grant.job].graph
    return graph.stages[graph.position[grant.stage]]


def _held(state: State, hosts: Iterable[str]) -> dict[str, dict[int, bool]]:
    """By host, the ports that tasks have there, on all of its nodes."""
    held: dict[str, dict[int, bool]] = {host: {} for host in hosts}
    for name, node in state.nodes.items():
        ports = held.get(_host_of(name, node))
        if ports is not None:
            for hold in node.holds.values():
                if hold.port:
                    ports[hold.port] = True
    return held


def _free_ports(node: NodeState, taken: dict[int, bool], begin: int, count: int) -> list[int]:
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
