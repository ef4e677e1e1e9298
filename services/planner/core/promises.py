"""What the planner has promised: to which reservations, by which leases, and what became of it."""

from dataclasses import dataclass, field

from schemas import Cache, Vector


@dataclass(slots=True)
class Lease:
    """`gangs` gangs of the atom at the path `atom`, in steps `[begin, end)`."""

    atom: str
    begin: int
    end: int
    gangs: int


@dataclass(slots=True)
class Terms:
    """An atom as it was asked for. `unit`: by resource; `work`: unit-milliseconds; its window is [begin_ms, end_ms)."""

    atom: str
    unit: Vector
    gang: int
    work: int
    begin_ms: int
    end_ms: int


@dataclass(slots=True)
class Promise:
    """An accepted reservation. `seq`: of the request that was accepted. `series`: of an occurrence, its series,
    which may have ended.

    What the log says of its progress, by atom: `works`, gang-steps that take the place of the work asked for;
    `missing`, unit-milliseconds that its plan had too little, or too much, when it was compared last. `done`: by atom,
    the work of its jobs that was counted so far, in 10^-6 unit-milliseconds. `weight`: what it counts beside others.
    `terms`: of all its atoms, by path.
    """

    user: str
    queue: str
    rdl: str
    seq: int
    leases: list[Lease] = field(default_factory=list)
    series: str = ""
    works: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    weight: int = 1
    terms: Cache[dict[str, Terms] | None] = None


@dataclass(slots=True)
class Broken:
    """A promise that could not be kept, with its leases up to that moment. It is tried again until `until_ms`. `why`:
    what broke it.
    """

    promise: Promise
    until_ms: int
    why: str
