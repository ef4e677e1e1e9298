"""What the solver proposes: plans that meet their requests, at least as many as were accepted online, or nothing."""

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from services.planner import milp
from tests.plan_rig import STEP, accepted, ask, atom, faults, gang, group, held, window

pytest.importorskip("highspy", reason="the extra `planner` is not installed")

CAPACITY = {"x": 6, "y": 8}
STEPS = 12


@st.composite
def atoms(draw):
    gang = draw(st.integers(1, 2))
    units = gang * draw(st.integers(1, 2))
    return atom(
        units,
        draw(st.integers(1, units * STEP * 3)),
        STEP * draw(st.integers(1, 3)),
        gang,
        x=draw(st.integers(0, 2)),
        y=draw(st.integers(1, 2)),
    )


requests = st.builds(
    lambda begin, op, of: window(begin * STEP, STEPS * STEP, group(op, *of)),
    st.integers(0, 4),
    st.sampled_from(["all", "any", "order", "order_no_gap"]),
    st.lists(atoms(), min_size=1, max_size=3),
)


@settings(max_examples=8, deadline=None)
@for_all(st.lists(requests, min_size=1, max_size=4))
def test_reorganised_plans_meet_their_requests_and_break_no_promise(asked):
    online = ask(*asked, capacity=CAPACITY, horizon=STEPS * STEP)
    answer = ask(*asked, agent="milp", capacity=CAPACITY, horizon=STEPS * STEP, time_limit_s=20)

    named = {f"r{i}": rdl for i, rdl in enumerate(asked)}
    assert faults(named, held(answer), CAPACITY, STEPS * STEP) == []
    assert all(now for before, now in zip(accepted(online), accepted(answer), strict=True) if before)
    assert answer["agent_kind"] == ("milp" if answer["solver"] == "adopted" else "flat")


def test_the_solver_accepts_what_no_online_form_finds_room_for():
    # The wide ones fit only if the narrow one keeps to the middle, where no form puts it.
    narrow = window(0, 300, atom(2, 120, lease=60, gang=2))
    sides = window(0, 300, group("order_no_gap", gang(10, 120), gang(8, 60), gang(10, 120)))

    for agent in ("gree", "gree-l", "early"):
        assert accepted(ask(narrow, sides, agent=agent)) == [True, False]
    answer = ask(narrow, sides, agent="milp", time_limit_s=300)

    assert accepted(answer) == [True, True]
    assert faults({"r0": narrow, "r1": sides}, held(answer), {"x": 10}, 6_000) == []


def test_without_the_solver_plans_stay_as_they_were_and_it_is_said_how_to_install_it(monkeypatch, tmp_path):
    (tmp_path / "highspy.py").write_text("raise ImportError('not here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    answer = ask(window(0, 600, gang(5, 300)), agent="milp")

    assert accepted(answer) == [True]
    assert (answer["agent_kind"], answer["solver"]) == ("flat", milp.NOT_INSTALLED)


def test_large_programs_are_planned_in_longer_steps():
    node = {
        "path": "0",
        "unit": [1],
        "gang": 1,
        "gangs_most": 4,
        "lease": 3,
        "work": 40_000,
        "begin": 1,
        "end": 3 * milp.VARIABLES_MAX,
    }
    assert milp.variables([node], 1) > milp.VARIABLES_MAX

    model = milp.Model([4], 3 * milp.VARIABLES_MAX, 7)
    model.request(0, node, must=True)

    assert len(model.program.lower) <= milp.VARIABLES_MAX
