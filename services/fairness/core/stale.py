"""Marks which of fairness's results are out of date. Only the functions in this module, called by the folds, mark
anything.

Out of date can be: the levels, by how much demand has moved (tolerance.py), and the entitlements (`Freshness`); the
units to check after the closing (`touched`); and the caches `filled`, `accounts` and `directions`, which hold results
together with what has changed since.
"""

from schemas.presets import PRESETS
from services.fairness.core.state import State


def all_changed(state: State) -> None:
    """What is divided, or by which rules, has changed: nothing that was worked out holds any more."""
    refill(state)
    entitle(state)
    state.filled = state.accounts = state.directions = None
    for unit in state.levels.units:
        state.caps.touch(unit)


def refill(state: State) -> None:
    """The next opening works the levels out again."""
    state.freshness.refill_due = True


def entitle(state: State) -> None:
    """The next opening works out again what jobs are entitled to: jobs, queues or capacity have changed."""
    state.freshness.entitlement_due = PRESETS[state.policy.preset].plans_jobs


def abandon(state: State) -> None:
    """A round is given up, so what it worked out is not in force."""
    if state.freshness.refills:
        refill(state)
    if state.freshness.entitles:
        entitle(state)


def change_demand(state: State, leaf: str) -> None:
    """What a leaf asks for is about to change. Keeps what it asked for at the last refill (tolerance.py)."""
    if leaf not in state.freshness.asked_before:
        state.freshness.asked_before[leaf] = {
            kinds: dict(demand) for kinds, demand in state.demands.of(leaf).sets.items()
        }
    if state.filled is not None:
        state.filled.moved[leaf] = True


def change_sums(state: State, leaf: str) -> None:
    """What a leaf asks for, waits for or holds has changed."""
    state.caps.touch(leaf)
    if state.accounts is not None:
        state.accounts.moved[leaf] = True


def change_work(state: State, job: str) -> None:
    """A job's remaining work has changed (tasks ended, or it came or went), and with it the direction of its
    entitlement.
    """
    if state.directions is not None:
        state.directions.stale[job] = True
