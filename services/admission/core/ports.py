"""Ports for tasks of gangs: each has one of its own on its host, where the others reach it.

Which one follows from the log alone: nobody asks a machine whether it is free. The tasks of an attempt have ports in a
row, each attempt those behind the attempt before, so that it does not meet what that has left; ports that other gangs'
tasks have on the host, on whichever of its nodes, are passed over. Where a row begins is drawn, so that two cells on
one machine are unlikely to meet.
"""

from largesse.ids import draw
from schemas import GangPorts, Grant
from services.admission.core.state import NodeState, State


def ports_of(state: State, grants: list[Grant]) -> list[GangPorts]:
    """The ports of gangs' tasks that are granted, by grant, on nodes that offer some. Where too few of a node are left,
    no task of a grant has one.
    """
    found: list[GangPorts] = []
    taken: dict[str, dict[int, bool]] = {}
    for grant in grants:
        job = state.jobs[grant.job]
        stage = job.graph.stages[job.graph.position[grant.stage]]
        node = state.nodes[grant.node]
        if not stage.gang or not node.port_last:
            continue
        host = _host_of(grant.node, node)
        if host not in taken:
            taken[host] = _held_on(state, host)
        row = draw(state.policy.seed, job.seq, "ports", f"{grant.job}/{grant.stage}") % (1 << 32)
        ports = _free_ports(node, taken[host], row + grant.attempt * stage.tasks + grant.first, grant.count)
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


def _held_on(state: State, host: str) -> dict[int, bool]:
    """The ports that tasks have on a host, on all of its nodes."""
    held: dict[int, bool] = {}
    for name, node in state.nodes.items():
        if _host_of(name, node) == host:
            for hold in node.holds.values():
                if hold.port:
                    held[hold.port] = True
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
