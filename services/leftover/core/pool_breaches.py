"""Reports of class pools that are exceeded for a queue's guarantee: when that begins and when it is over."""

from schemas import PoolBreach
from services.leftover.core.state import State
from services.leftover.placement.board import Board


def breach_key(queue: str, job_class: int) -> str:
    """The key under which a breach is kept."""
    return f"{job_class}/{queue}"


def pool_breaches(state: State, board: Board, beyond: list[tuple[str, int]]) -> list[PoolBreach]:
    """Breaches that began in this round, of the leaves and classes of jobs that were taken `beyond` a pool in it, and
    those that are over because the class holds no more than its pool.
    """
    found = {
        key: PoolBreach(queue, job_class)
        for queue, job_class in beyond
        if (key := breach_key(queue, job_class)) not in state.pool_breaches
    }
    for key, said in state.pool_breaches.items():
        if not board.pools.is_exceeded(said.job_class):
            found[key] = PoolBreach(said.queue, said.job_class, said.winner, over=True)
    return [found[key] for key in sorted(found)]
