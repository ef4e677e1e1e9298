"""Demands of TPC-H stages: read from a file, or drawn by the rule that made it. Synthetic: they were not measured.

By the rule a stage's class follows from its place in the graph, and each resource is drawn log-uniformly from the
class's range by a hash of seed, query and stage: a query asks the same at every size.
"""

from decimal import Decimal
from fractions import Fraction

from schemas.quantities import Vector
from services.simulator.workloads.draws import EXACT, share_of_key
from services.simulator.workloads.files import Damaged
from services.simulator.workloads.source import json_rows, nearest, up

Demands = dict[tuple[int, int], Vector]
"""(query, stage id) -> base units."""

# class -> resource -> (low, high); quanta below.
RANGES = {
    "scan": {"cpu": ("0.5", "2"), "mem_gb": ("0.5", "4"), "disk_mbps": ("10", "60"), "net_mbps": ("1", "8")},
    "shuffle": {"cpu": ("0.5", "2"), "mem_gb": ("2", "16"), "disk_mbps": ("2", "20"), "net_mbps": ("15", "120")},
    "agg": {"cpu": ("0.5", "2"), "mem_gb": ("1", "8"), "disk_mbps": ("2", "20"), "net_mbps": ("8", "60")},
    "sink": {"cpu": ("0.25", "1"), "mem_gb": ("0.5", "2"), "disk_mbps": ("4", "30"), "net_mbps": ("2", "15")},
}
QUANTA = {"cpu": Fraction(1, 4), "mem_gb": Fraction(1, 4), "disk_mbps": Fraction(1), "net_mbps": Fraction(1)}
_DRAWS = 1 << 64


def read_demands(path: str) -> Demands:
    """Demands of a file of JSON lines, one a query. Raises Damaged."""
    demands: Demands = {}
    for row in json_rows(path):
        query = row.whole("query", 1)
        for stage in row.rows("stages"):
            place = query, stage.whole("id")
            if place in demands:
                raise Damaged(stage.where, "id", f"query {query} has a stage {place[1]} already")
            demands[place] = base_units({name: stage.number(name) for name in QUANTA})
    return demands


def drawn_demand(seed: str, query: int, stage: int, kind: str) -> Vector:
    """The demand that the rule draws for a stage of class `kind`."""
    amounts = {}
    for name, (low, high) in RANGES[kind].items():
        share = EXACT.divide(Decimal(share_of_key(f"{seed}|q{query}|s{stage}|{name}")), Decimal(_DRAWS))
        span = EXACT.ln(EXACT.divide(Decimal(high), Decimal(low)))
        value = EXACT.multiply(Decimal(low), EXACT.exp(EXACT.multiply(share, span)))
        amounts[name] = QUANTA[name] * nearest(Fraction(value) / QUANTA[name])
    return base_units(amounts)


def stage_class(stage: int, parents: dict[int, list[int]]) -> str:
    """A stage's class by its place in its query's graph."""
    if not parents[stage]:
        return "scan"
    if not any(stage in of for of in parents.values()):
        return "sink"
    return "shuffle" if len(parents[stage]) > 1 else "agg"


def base_units(amounts: dict[str, Fraction]) -> Vector:
    """Cores, GB and MB/s as millicores, MiB (a GB of memory is 1,024 MiB) and Mbit/s; rounded up."""
    return {
        "cpu": up(amounts["cpu"] * 1000),
        "memory": up(amounts["mem_gb"] * 1024),
        "disk_io": up(amounts["disk_mbps"] * 8),
        "network": up(amounts["net_mbps"] * 8),
    }
