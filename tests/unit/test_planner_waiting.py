"""What waits for the planner is of four kinds, each of which comes back from a snapshot as what it was."""

import pytest

from largesse.log.snapshots import dump, load
from schemas import ProposedPlan
from services.planner import core
from services.planner.core.promises import Lease
from services.planner.core.waiting import Follow, Need, Proposal, Request, Restore, given_back


def asked(kind, name="r", seq=1, **more):
    return Request(kind, name, "ann", "q", "", seq, **more)


@pytest.mark.parametrize(
    ("field", "waits"),
    [
        pytest.param("waiting", asked("request", series="s", weight=3, aside=1, restarts=2), id="a request"),
        pytest.param("waiting", asked("delete"), id="a deletion"),
        pytest.param("waiting", Proposal(7, [ProposedPlan("r", [])], aside=2), id="a proposal"),
        pytest.param("waiting", Proposal(7, []), id="a proposal of nothing"),
        pytest.param("looks", Follow("r", [Need("a", 1, 2, 3, 4)]), id="a promise that follows its jobs"),
        pytest.param("retries", Restore("r", "ann", "q", "{}", 2, [Lease("a", 1, 2, 3)], {"a": 5}), id="a broken one"),
    ],
)
def test_what_waits_comes_back_as_what_it_was(field, waits):
    state = core.start()
    setattr(state, field, [waits])

    (back,) = getattr(load(core.State, dump(state)), field)

    assert (type(back), back) == (type(waits), waits)


def test_only_deletions_give_back():
    waiting = [asked("request", "a"), Proposal(2, []), asked("delete", "b", 3), asked("update", "c", 4)]

    assert given_back(waiting) == {"b": True}
