"""Makes a failing plan smaller: fewer faults, jobs, nodes, as long as the same rule is broken."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.faults.plan import RATES, Plan


def shrink(plan: Plan, breaks: Callable[[Plan], bool], tries_max: int = 150) -> Plan:
    """The smallest plan that was found by leaving out one thing after the other; `breaks` plays a plan."""
    tries, found = 0, True
    while found:
        found = False
        for smaller in candidates(plan):
            tries += 1
            if tries > tries_max:
                return plan
            if breaks(smaller):
                plan, found = smaller, True
                break
    return plan


def candidates(plan: Plan) -> Iterator[Plan]:
    """Plans with less, those with much less first."""
    half = len(plan.faults) // 2
    if half > 1:
        yield replace(plan, faults=plan.faults[:half])
        yield replace(plan, faults=plan.faults[half:])
    for kind in RATES:
        if getattr(plan.rates, kind):
            yield replace(plan, rates=plan.rates.but({kind: 0}))
    for at in range(len(plan.faults)):
        yield replace(plan, faults=plan.faults[:at] + plan.faults[at + 1 :])
    if len(plan.jobs) > 1:
        for at in range(len(plan.jobs)):
            yield replace(plan, jobs=plan.jobs[:at] + plan.jobs[at + 1 :])
    if plan.bad_ms:
        yield replace(plan, bad_ms=())
    if len(plan.nodes) > 1:
        yield from (without(plan, node) for node in plan.nodes)
    for name in plan.standbys:
        left = tuple(fault for fault in plan.faults if fault.target.split(":")[0] != f"{name}+")
        yield replace(plan, standbys=tuple(n for n in plan.standbys if n != name), faults=left)


def without(plan: Plan, node: str) -> Plan:
    """The plan without a node, and without what happens to it."""
    names = (node, f"agent-{node}")
    left = tuple(fault for fault in plan.faults if fault.target.split(":")[0] not in names)
    return replace(plan, nodes={name: cpu for name, cpu in plan.nodes.items() if name != node}, faults=left)
