"""How the lives of a campaign's seed end: at a failpoint's n-th occasion, or at a random moment."""

import random

ROUND = ("decide", "publish", "snapshot")
PLACES: dict[str, tuple[str, ...]] = {
    "admission": ("consume", "judge", "append", "read_back", "close", "snapshot"),
    **dict.fromkeys(("fairness", "altruism-0", "leftover", "estimator", "planner"), ("consume", *ROUND)),
    "gateway": ("consume", "snapshot"),
    "agent": ("consume", "publish", "task_start"),
    "bus": ("mark",),
}
FAILPOINTS = [f"{name}:{when}_{place}" for name in PLACES for place in PLACES[name] for when in ("before", "after")]
HITS_MAX = {"consume": 60, "judge": 15, "append": 15, "read_back": 15, "snapshot": 3, "task_start": 3, "mark": 60}
"""A life comes to these points about as often; to all others as often as to HITS_MAX_ELSE."""
HITS_MAX_ELSE = 6
MOMENT = "moment"
"""In the place of a failpoint: a life that is killed at a random moment."""


def shuffled(items: list[str]) -> list[str]:
    """Always the same, in no order that favours one service."""
    return random.Random(7).sample(items, len(items))


def drawn_plan(seed: int, kills: int) -> list[str]:
    """How lives end: `service:point:n`, or at a moment."""
    dice = random.Random(f"plan {seed}")
    points, count = shuffled(FAILPOINTS), named_of(kills)
    plan = [MOMENT] * (kills - count)
    for at in range(count):
        point = points[(seed * count + at) % len(points)]
        most = HITS_MAX.get(point.partition("_")[2], HITS_MAX_ELSE)
        plan.append(f"{point}:{dice.randrange(1, most + 1)}")
    dice.shuffle(plan)
    return plan


def named_of(kills: int) -> int:
    """How many of a seed's lives have a failpoint."""
    return kills - kills // 3


def seeds_of(kills: int) -> int:
    """How many seeds in a row arm every failpoint."""
    return -(-len(FAILPOINTS) // named_of(kills))
