"""What an answer costs while a thousand reservations are promised over a week of minutes.

Requests of all forms (one atom, `all`, `any`, `order`, with and without gaps; gangs, short leases) come to a cell of
100 nodes, one after the other, until 1,000 are accepted; then further ones are timed, each of them given back. Counted
is the CPU time of the whole cell in one process, from the request's record to the record of its answer: the round, all
cores, records and hashes included. Run it with `make bench`, or `python -m benchmarks.answers [--quick]`.
"""

import sys
import time
from statistics import median
from typing import Any

from schemas import Plans, Record
from schemas.edge.cluster import read_cluster
from schemas.edge.read import read_input
from schemas.policy import KnobValue
from services.simulator.engine import Cell
from services.simulator.run import set_up, uncollected
from services.simulator.workloads.draws import below

NODES, CORES, GIB = 100, 16, 64
WEEK_S, MINUTE_S = 7 * 86_400, 60
AGENTS = ("default", "gree", "gree-l", "early")
SEED = 1
KINDS = ("atom", "atom", "atom", "all", "any", "order", "order", "order_no_gap")


class Answers:
    """A cell, and the planner's answers to what it is asked."""

    def __init__(self, agent: str) -> None:
        self.answers: list[bool] = []  # To what was asked last.
        self.cell = Cell(observers=[self._observe])
        knobs: dict[str, KnobValue] = {"preset": "rayon", "reservation_agent": agent}
        nodes = [{"name": "n", "count": NODES, "capacity": {"cpu": CORES, "memory": f"{GIB}Gi"}}]
        set_up(self.cell, knobs, None, read_cluster({"nodes": nodes}))
        while self.cell.settle() is not None:
            pass

    def _observe(self, record: Record) -> None:
        if isinstance(record.body, Plans):
            for answer in record.body.answers:
                if answer.reason in ("", "deleted") or not answer.accepted:
                    self.answers.append(answer.accepted)

    def ask(self, message: dict[str, Any]) -> tuple[bool, float]:
        """The answer, and the CPU milliseconds until it is in the log."""
        body = read_input("reservations", message, "bench")
        self.answers.clear()
        begun = time.process_time_ns()
        self.cell.take(body, "bench")
        while not self.answers:
            if self.cell.settle() is None:
                due_ms = self.cell.next_due_ms()
                assert due_ms is not None, "a request was not answered"
                self.cell.advance(max(self.cell.time, due_ms))
        return self.answers[-1], (time.process_time_ns() - begun) / 1_000_000


def request(number: int) -> dict[str, Any]:
    """One request; the thousand ask for about two thirds of the week's capacity."""

    def drawn(limit: int, what: str) -> int:
        return below(limit, SEED, f"answers.{what}", str(number))

    kind = KINDS[drawn(len(KINDS), "kind")]
    parts = [_atom(drawn, i) for i in range(1 if kind == "atom" else 2 + drawn(3, "parts"))]
    body = parts[0] if kind == "atom" else {"op": kind, "of": parts}
    takes_s = sum(max(part["l"], -(-part["w"] // part["h"])) + MINUTE_S for part in parts)
    length_s = min(takes_s * (110 + drawn(300, "slack")) // 100, WEEK_S // 2)
    begin_s = drawn((WEEK_S - length_s - 7_200) // MINUTE_S, "begin") * MINUTE_S + MINUTE_S
    window = {"op": "window", "s": begin_s, "e": begin_s + length_s, "of": body}
    return {"reservation": f"r{number}", "user": f"u{number % 17}", "rdl": window}


def _atom(drawn: Any, i: int) -> dict[str, Any]:
    cores = 1 + drawn(4, f"cores-{i}")
    memory = f"{cores * (1, 2, 4, 8)[drawn(4, f'memory-{i}')]}Gi"
    lease_s = MINUTE_S * (5 + drawn(120, f"lease-{i}"))
    most = 1 + drawn(NODES * CORES // cores // 12, f"most-{i}")
    gang = drawn(3, f"gang-{i}") == 0
    short = not gang and drawn(2, f"short-{i}") == 0
    work = most * lease_s
    return {
        "op": "atom",
        "b": {"cpu": str(cores), "memory": memory},
        "g": most if gang else 1,
        "h": most,
        "l": MINUTE_S if short else lease_s,
        "w": work,
    }


def measured(agent: str, held: int, more: int) -> str:
    """A line of the table."""
    answers = Answers(agent)
    filling: list[float] = []
    number = accepted = 0
    while accepted < held:
        is_accepted, took_ms = answers.ask({"request": request(number)})
        filling.append(took_ms)
        number, accepted = number + 1, accepted + is_accepted
    timed: list[float] = []
    rejected = 0
    for _ in range(more):
        asked = request(number)
        is_accepted, took_ms = answers.ask({"request": asked})
        timed.append(took_ms)
        number += 1
        rejected += not is_accepted
        if is_accepted:
            answers.ask({"delete": {"reservation": asked["reservation"], "user": asked["user"]}})
    quarter = len(filling) // 4
    growth = median(filling[-quarter:]) / median(filling[:quarter])
    timed.sort()
    tail = timed[-(-len(timed) * 99 // 100) - 1]
    return (
        f"{agent:8} {len(filling):9,} {median(timed):9.2f} {tail:9.2f} {timed[-1]:9.2f}"
        f" {growth:9.2f} {rejected:5,} of {more:,}"
    )


def main() -> None:
    """Prints a line an agent."""
    quick = "--quick" in sys.argv[1:]
    held, more = (100, 50) if quick else (1_000, 200)
    print(f"answers with {held:,} reservations promised over a week of minutes, {NODES} nodes, CPU ms")
    print("agent    requests    median       p99      most    growth rejected")
    for agent in AGENTS:
        with uncollected():
            print(measured(agent, held, more), flush=True)


if __name__ == "__main__":
    main()
