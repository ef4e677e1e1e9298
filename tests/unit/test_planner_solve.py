"""`python -m services.planner solve`: every kind of problem, and what is wrong with a malformed one."""

import json
import subprocess
import sys

import pytest

from services.planner.offline.problem import BadProblem
from services.planner.offline.solve import parsed
from services.planner.planning.profile import AMOUNT_MAX
from tests.plan_rig import accepted, ask, atom, gang, group, solved, window

X = {"step_s": 60, "horizon_s": 6_000, "capacity": {"x": 10}}


def span(begin, end, **usage):
    return {"from": begin, "to": end, "usage": usage}


def adds(*profiles, users=None, ops=None, existing=(), **quota):
    given = [
        {
            "op": (ops or ["add"] * len(profiles))[i],
            "id": f"r{i}" if not ops else "r",
            "user": (users or ["ann"] * len(profiles))[i],
            "profile": profile,
        }
        for i, profile in enumerate(profiles)
    ]
    more = {"user_quota": {"window_s": 600, **quota}} if quota else {}
    return solved("reservation-policy", {**X, "existing": list(existing), "adds": given, **more})["results"]


def reasons(results):
    return [result.get("reason", "").split(":")[0] for result in results]


def test_nothing_is_promised_twice():
    assert reasons(adds([span(0, 600, x=6)], [span(300, 360, x=5)], [span(600, 900, x=10)])) == ["", "over_commit", ""]


def test_a_user_holds_no_more_than_its_share_at_any_moment_and_others_may():
    found = adds(
        [span(0, 600, x=3)],
        [span(0, 60, x=3)],
        [span(0, 60, x=3)],
        users=["ann", "ann", "bob"],
        max_instant_share=0.5,
    )

    assert reasons(found) == ["", "user_instant_limit", ""]


@pytest.mark.parametrize(
    ("begin", "fits"),
    [
        pytest.param(300, False, id="the window holds both"),
        pytest.param(540, False, id="a window holds all of the first and a part of the second"),
        pytest.param(600, True, id="no window holds more of one than it loses of the other"),
    ],
)
def test_a_users_average_is_taken_over_every_window(begin, fits):
    found = adds([span(0, 300, x=10)], [span(begin, begin + 300, x=10)], max_average_share=0.5)

    assert [result["accepted"] for result in found] == [True, fits]


def test_an_update_counts_the_new_profile_alone():
    found = adds([span(0, 600, x=8)], [span(0, 600, x=9)], [span(0, 600, x=11)], ops=["add", "update", "update"])

    assert reasons(found) == ["", "", "over_commit"]


def test_a_profile_is_updated_by_its_owner_alone():
    found = adds([span(0, 600, x=8)], [span(0, 600, x=1)], ops=["add", "update"], users=["ann", "bob"])

    assert reasons(found) == ["", "not_owner"]


@pytest.mark.parametrize(
    ("rdl", "more", "reason"),
    [
        pytest.param(window(0, 600, gang(5, 600)), {}, None, id="it fits to the second"),
        pytest.param(window(0, 540, gang(5, 600)), {}, "too short", id="the window is too short"),
        pytest.param(window(0, 599, gang(5, 600)), {}, "too short", id="on the grid"),
        pytest.param(window(600, 600, gang(5, 60)), {}, "has to end after", id="an empty window"),
        pytest.param(window(0, 600, gang(5, 60)), {"now": 600}, "already", id="a deadline that has passed"),
        pytest.param(window(0, 600, gang(5, 600)), {"now": 60}, "too short", id="the time that has passed is no use"),
        pytest.param(window(0, 600, gang(11, 60)), {}, "together", id="a gang larger than the cell"),
        pytest.param(window(0, 600, gang(1, 60, x=11)), {}, "a unit of atom", id="a unit larger than the cell"),
        pytest.param(window(0, 600, gang(1, 60, y=1)), {}, "has none of it", id="a resource the cell has not got"),
        pytest.param(window(0, 600, atom(20, 20 * 600)), {}, "too short", id="the cell is too narrow for the work"),
        pytest.param(window(0, 600, {**gang(5, 60), "g": 6}), {}, "more than h", id="g above h"),
        pytest.param(window(0, 600, {**gang(5, 60), "w": 0}), {}, "rdl.of.w", id="no work"),
        pytest.param(window(0, 600, {**gang(5, 60), "l": 0}), {}, "rdl.of.l", id="no lease"),
        pytest.param(window(0, 600, {**gang(5, 60), "k": 0}), {}, "rdl.of.k", id="an unknown field"),
        pytest.param(window(0, 600, group("all")), {}, "at least one", id="a group of nothing"),
        pytest.param(window(0, 600, group("some", gang(1, 60))), {}, "rdl.of.op", id="an unknown operator"),
        pytest.param(
            window(0, 600, group("order", *[gang(5, 240)] * 3)), {}, "order of 3", id="links that take too long"
        ),
        pytest.param(window(0, 600, group("any", gang(11, 60), gang(1, 60))), {}, None, id="one branch of any will do"),
        pytest.param(window(0, 600, group("all", gang(11, 60), gang(1, 60))), {}, "together", id="every branch of all"),
        pytest.param(window(0, 600, gang(1, 60)), {"recurrence": "600"}, None, id="a period as long as the window"),
        pytest.param(window(0, 600, gang(1, 60)), {"recurrence": 599}, "overlaps", id="a period shorter than it"),
        pytest.param(window(0, 600, gang(1, 60)), {"recurrence": "-600"}, "0 (none) or more", id="a negative period"),
        pytest.param(window(0, 600, gang(1, 60)), {"recurrence": "6oo"}, "recurrence", id="a period that is none"),
        pytest.param(window(0, 600, gang(1, 60)), {"recurrence": "0"}, None, id="no recurrence"),
    ],
)
def test_a_request_that_could_never_be_met_is_told_why(rdl, more, reason):
    answer = solved("rdl-validation", {**X, "now": 0, "rdl": rdl, **more})

    assert answer["valid"] == (reason is None)
    assert reason is None or reason in answer["reason"]


def test_a_request_has_a_limit_of_atoms_and_of_depth():
    deep = gang(1, 60)
    for _ in range(11):
        deep = group("all", deep)
    many = group("all", *[gang(1, 60)] * 1_000)

    def valid(rdl):
        return solved("rdl-validation", {**X, "now": 0, "rdl": window(0, 6_000, rdl)})["valid"]

    assert valid(deep)
    assert not valid(group("all", deep))
    assert valid(many)
    assert not valid(group("all", many, gang(1, 60)))


def test_a_stage_touches_the_placed_one_on_its_side_and_has_no_gap():
    candidates = [
        ("before", [[9, 10]], True),
        ("before", [[7, 8], [9, 10]], False),
        ("before", [[8, 9]], False),
        ("before", [[7, 8], [8, 10]], True),
        ("after", [[13, 14]], True),
        ("after", [[14, 15]], False),
        ("after", [[13, 14], [15, 16]], False),
        ("after", [[14, 16], [13, 15]], True),
    ]
    answer = solved(
        "order-no-gap-check",
        {
            "step_s": 1,
            "placed_stage": [[10, 12], [12, 13]],
            "candidates": [{"stage": stage, "position": position} for position, stage, _ in candidates],
        },
    )

    assert answer["no_gap"] == [expected for _, _, expected in candidates]


def test_an_interval_fits_what_is_free_throughout_and_costs_its_load():
    answer = solved(
        "capacity-profile",
        {
            "step_s": 1,
            "horizon_s": 100,
            "capacity": {"x": 100, "y": 100},
            "free": [span(10, 20, x=4, y=4), span(20, 30, x=8, y=8), span(30, 40, x=4, y=4)],
            "load": [span(20, 30, x=5, y=5)],
            "pending_changes": [span(25, 35, x=1, y=1)],
            "bundle": {"x": 1, "y": 1},
            "intervals": [[10, 30], [10, 31], [15, 22], [20, 25], [25, 30], [0, 10]],
        },
    )

    assert answer["fit"] == [4, 3, 4, 8, 7, 0]
    assert answer["cost"] == pytest.approx([0.55, 0.56, 0.1, 0.25, 0.3, 0])


def replan(*reservations, after=7, window_s=600):
    given = [
        {"id": f"r{order}", "accepted_order": order, "profile": [span(begin, end, x=units)]}
        for order, begin, end, units in reservations
    ]
    return solved(
        "replan",
        {
            "now": 0,
            "check_window_s": window_s,
            "step_s": 60,
            "capacity_before": {"x": 10},
            "capacity_after": {"x": after},
            "reservations": given,
        },
    )


def test_a_loss_of_capacity_breaks_the_promises_that_were_accepted_last():
    answer = replan((2, 0, 300, 4), (0, 0, 300, 3), (1, 0, 300, 3))

    assert answer == {"removed": ["r2"], "kept": ["r0", "r1"]}


def test_a_resource_that_is_gone_altogether_breaks_its_promises():
    profile = [span(0, 300, x=1, y=1)]
    given = {"capacity_before": {"x": 9, "y": 9}, "capacity_after": {"x": 9}, "step_s": 60, "now": 0}
    reservations = [{"id": "r", "accepted_order": 0, "profile": profile}]

    assert solved("replan", {**given, "reservations": reservations})["removed"] == ["r"]


def test_promises_beyond_the_check_window_wait():
    answer = replan((0, 600, 900, 5), (1, 600, 900, 5), window_s=600)

    assert answer["removed"] == []


def test_a_promise_that_another_ones_end_makes_room_for_is_kept():
    answer = replan((0, 300, 600, 5), (1, 0, 600, 3), (2, 0, 300, 5))

    assert answer["removed"] == ["r1"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"kind": "reservations"}, "kind: has to be one of", id="the kind"),
        pytest.param({"input": []}, "input: has to be an object", id="the input"),
        pytest.param({"input": {**X, "capacity": {"x": -1}}}, "input.capacity.x", id="the capacity"),
        pytest.param({"input": {**X, "step_s": 0}}, "input.step_s", id="the step"),
        pytest.param({"input": {**X, "horizon_s": 10**12, "step_s": 1}}, "input.horizon_s", id="the horizon"),
        pytest.param({"input": {**X, "sequence": [{"op": "submit"}]}}, "input.sequence[0].id", id="an operation"),
        pytest.param({"input": {**X, "sequence": [{"op": "get", "id": "r"}]}}, "input.sequence[0].op", id="an op"),
        pytest.param({"input": {**X, "sequence": [], "existing": [1]}}, "input.existing[0]", id="what exists"),
    ],
)
def test_a_malformed_problem_is_refused_with_the_field(change, message):
    problem = {"kind": "reservation", "input": {**X, "sequence": []}, **change}

    with pytest.raises(BadProblem) as fault:
        solved(problem["kind"], problem["input"])
    assert str(fault.value).startswith(message)


def test_decimals_are_exact():
    rdl = window(0, 60, gang(3, 60, x=0.1))

    assert ask(rdl, capacity={"x": 0.3})["results"][0]["accepted"]
    assert not ask(rdl, capacity={"x": 0.29999})["results"][0]["accepted"]


def test_amounts_may_be_quantities():
    rdl = window(0, 60, gang(2, 60, cpu="500m", memory="1Gi"))

    assert ask(rdl, capacity={"cpu": "1", "memory": "2Gi"})["results"][0]["accepted"]
    assert not ask(rdl, capacity={"cpu": "1", "memory": "2047Mi"})["results"][0]["accepted"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("document", "code"),
    [
        pytest.param(json.dumps({"kind": "reservation", "input": {**X, "sequence": []}}), 0, id="an answer"),
        pytest.param("{", 2, id="no JSON"),
        pytest.param("[" * 100_000, 2, id="JSON that is too deep"),
    ],
)
def test_the_command_prints_one_document_or_one_line_of_complaint(document, code):
    asked = subprocess.run(
        [sys.executable, "-m", "services.planner", "solve"], input=document, capture_output=True, text=True, check=False
    )

    assert asked.returncode == code
    if code:
        assert asked.stdout == ""
        assert asked.stderr.startswith("cannot solve this")
        assert asked.stderr.count("\n") == 1
    else:
        assert json.loads(asked.stdout)["results"] == []


@pytest.mark.parametrize("agent", ["gree", "gree-l", "early", "default"])
def test_the_largest_amounts_are_planned_exactly_and_larger_ones_are_refused(agent):
    """Products of such amounts with widths and lengths stay whole and exact."""
    half = AMOUNT_MAX // 2
    halves = [window(0, 6_000, gang(2, 6_000, x=half)) for _ in range(2)]
    answer = ask(*halves, agent=agent, capacity={"x": AMOUNT_MAX})
    assert accepted(answer) == [True, False]
    with pytest.raises(BadProblem, match=r"capacity\.x"):
        ask(*halves, agent=agent, capacity={"x": AMOUNT_MAX + 1})


@pytest.mark.parametrize(
    "problem", ['{"kind": "policy", "input": {"horizon": NaN}}', '{"input": {"horizon": 1, "horizon": 2}}']
)
def test_a_problem_that_is_no_json_of_ours_names_the_field(problem):
    with pytest.raises(BadProblem, match=r"^input\.horizon: "):
        parsed(problem)
