"""Smaller forms of a request: narrower where its units do not fit on the nodes, and as an offer says them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from services.planner.planning.node_fit import NodeClass, is_small, units_in
from services.planner.planning.request import Group, Node, atoms, scaled

NARROWER_MAX = 3
"""Times that the width of large units is halved, where a plan does not fit on the nodes."""

SIZES_SHOWN_MAX = 3
"""Atoms of which an offer says the size."""


def widths(node: Node, nodes: Sequence[NodeClass] | None) -> Iterator[Node]:
    """A request, its large units no wider than the nodes hold at all; then with half of that, NARROWER_MAX times: on
    nodes fewer at a time may fit where the sum has room for more."""
    if not nodes:
        yield node
        return
    before: Node | None = None
    for halvings in range(1 + NARROWER_MAX):
        narrow = _narrowed(node, nodes, halvings)
        if before is not None and narrow == before:
            return
        yield narrow
        before = narrow


def _narrowed(node: Node, nodes: Sequence[NodeClass], halvings: int) -> Node:
    if isinstance(node, Group):
        return Group(node.kind, [_narrowed(branch, nodes, halvings) for branch in node.of])
    if is_small(node.unit, nodes):
        return node
    most = min(node.gangs_most, units_in(node.unit, nodes) // node.gang) >> halvings
    return node if most >= node.gangs_most else replace(node, gangs_most=max(1, most))


def sizes_text(node: Node, permille: int) -> str:
    """The sizes of the atoms of a request that is scaled, as it would be written: SIZES_SHOWN_MAX of them."""
    texts = []
    for atom, small in zip(atoms(node), atoms(scaled(node, permille)), strict=True):
        width, work = f"h={small.gangs_most * small.gang}", permille
        if atom.gangs_most == 1:
            width, work = f"g={small.gang}, {width}", small.gang * 1000 // atom.gang
        texts.append(f"{width} and {work // 10}.{work % 10} % of w for atom {atom.path}")
    more = len(texts) - SIZES_SHOWN_MAX
    return "; ".join(texts[:SIZES_SHOWN_MAX]) + (f"; and the same part of {more} more" if more > 0 else "")
