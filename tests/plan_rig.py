"""Reservations for tests of the planner: short ways to write RDL, to ask `solve`, and to judge what it answers.

The judge reads only the request and the leases, second by second, and shares no code with the planner.
"""

import json
from collections import Counter
from itertools import pairwise

from services.planner.offline.solve import parsed, solve

STEP = 60


def atom(units, work, lease=STEP, gang=1, **b):
    """An atom of one resource `x` unless `b` says otherwise; times in seconds, `work` in unit-seconds."""
    return {"op": "atom", "b": b or {"x": 1}, "g": gang, "h": units, "l": lease, "w": work}


def gang(units, seconds, **b):
    """Units that run together, once, for so long."""
    return atom(units, units * seconds, lease=seconds, gang=units, **b)


def window(begin, end, of):
    return {"op": "window", "s": begin, "e": end, "of": of}


def group(op, *of):
    return {"op": op, "of": list(of)}


def ask(*requests, agent="default", capacity=None, horizon=6_000, step=STEP, **more):
    """The answer of `solve` to requests r0, r1, ... of user ann, or to operations."""
    operations = [
        each if isinstance(each, dict) and "id" in each else {"op": "submit", "id": f"r{i}", "user": "ann", "rdl": each}
        for i, each in enumerate(requests)
    ]
    given = {
        "step_s": step,
        "horizon_s": horizon,
        "capacity": capacity or {"x": 10},
        "agent": agent,
        "sequence": operations,
        **more,
    }
    return solved("reservation", given)


def solved(kind, given):
    """The answer of `solve` to a problem that went through JSON."""
    return solve(parsed(json.dumps({"kind": kind, "input": given})))


def accepted(answer):
    """For each operation whether it was accepted."""
    return [result["accepted"] for result in answer["results"]]


def held(answer):
    """What accepted requests of an answer hold in the end: id -> leases."""
    return answer.get("final_leases") or {
        result["id"]: result["leases"] for result in answer["results"] if result["accepted"]
    }


def faults(requests, leases, capacity, horizon, step=STEP):
    """What is wrong with leases: id -> leases, of requests: id -> RDL. Nothing is wrong with a good plan."""
    found = []
    used = Counter()
    for name, mine in leases.items():
        atoms = dict(_atoms(requests[name], "", 0, horizon))
        found += [f"{name}: {fault}" for fault in _shape_faults(requests[name], atoms, mine, step)]
        for lease in mine:
            for resource, need in atoms[lease["atom"]][0]["b"].items():
                for at in range(int(lease["from"] // step), int(lease["to"] // step)):
                    used[resource, at] += need * lease["n"]
    return found + [
        f"{resource} at step {at}: {amount}" for (resource, at), amount in used.items() if amount > capacity[resource]
    ]


def _atoms(rdl, path, begin, end):
    if rdl["op"] == "window":
        yield from _atoms(rdl["of"], path, max(begin, rdl["s"]), min(end, rdl["e"]))
    elif rdl["op"] == "atom":
        yield path or "0", (rdl, begin, end)
    else:
        for i, each in enumerate(rdl["of"]):
            yield from _atoms(each, f"{path}.{i}" if path else str(i), begin, end)


def _shape_faults(rdl, atoms, leases, step):
    by_atom = {}
    for lease in leases:
        by_atom.setdefault(lease["atom"], []).append(lease)
    for path, mine in by_atom.items():
        asked, begin, end = atoms[path]
        width = Counter()
        for lease in mine:
            if not begin <= lease["from"] < lease["to"] <= end:
                yield f"{path} outside its window"
            if lease["from"] % step or lease["to"] % step:
                yield f"{path} off the grid"
            if lease["n"] < 1 or lease["n"] % asked["g"]:
                yield f"{path} in parts of a gang"
            if lease["to"] - lease["from"] < asked["l"]:
                yield f"{path} with a lease too short"
            for at in range(lease["from"] // step, lease["to"] // step):
                width[at] += lease["n"]
        if max(width.values()) > asked["h"]:
            yield f"{path} too wide"
        work = [lease["n"] * (lease["to"] - lease["from"]) for lease in mine]
        if sum(work) < asked["w"]:
            yield f"{path} with too little work"
        least = [asked["g"] * (lease["to"] - lease["from"]) for lease in mine]
        if len(mine) > 1 and sum(work) - min(least) >= asked["w"] + asked["g"] * step * len(mine):
            yield f"{path} with a lease that is not needed"
    yield from _tree_faults(rdl, "", by_atom)


def _tree_faults(rdl, path, by_atom):
    if rdl["op"] == "window":
        yield from _tree_faults(rdl["of"], path, by_atom)
        return
    if rdl["op"] == "atom":
        if (path or "0") not in by_atom:
            yield f"{path} not served"
        return
    paths = [f"{path}.{i}" if path else str(i) for i in range(len(rdl["of"]))]
    extents = [_extent(each, by_atom) for each in paths]
    for each, extent, branch in zip(paths, extents, rdl["of"], strict=True):
        if rdl["op"] != "any" or extent:
            yield from _tree_faults(branch, each, by_atom)
    if rdl["op"] == "any" and sum(extent is not None for extent in extents) != 1:
        yield f"{path} any without one branch"
    if rdl["op"].startswith("order") and None not in extents:
        for (_, end), (begin, _) in pairwise(extents):
            if end > begin:
                yield f"{path} out of order"
            if rdl["op"] == "order_no_gap" and end < begin:
                yield f"{path} with a gap"


def _extent(path, by_atom):
    mine = [
        lease for name, leases in by_atom.items() if name == path or name.startswith(f"{path}.") for lease in leases
    ]
    return (min(lease["from"] for lease in mine), max(lease["to"] for lease in mine)) if mine else None
