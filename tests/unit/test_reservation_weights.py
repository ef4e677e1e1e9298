"""The weight of a reservation: from its request to its promise, and what it counts for."""

import json
import time

import pytest

from schemas import (
    InputRepeated,
    PlanAnswer,
    Plans,
    Record,
    ReservationRequested,
    ReservationUpdated,
    SeriesRequested,
)
from schemas.edge.read import Malformed, read_input
from services.cli.plan_chart import one_reservation, one_series
from services.cli.reservation_files import Wanted, read_request, read_series
from services.gateway.documents.reservations import reservation_document
from services.gateway.view.reservations import RESERVATION_FOLDS
from services.gateway.view.state import State as View
from services.planner.core.state import Series, State
from services.planner.milp import Model, solve
from services.planner.occurrences import Occurrences
from services.planner.offline.problem import BadProblem
from services.planner.planning.adoption import cost
from services.planner.planning.request import Atom, Lease
from services.planner.shell import question_of
from tests.builders import node_lost, registered, reservation
from tests.cells import AUTHOR, one_node_cell
from tests.gateway_cell import run_in_memory
from tests.plan_rig import ask, gang
from tests.planner_cell import flat, two_nodes
from tests.properties.test_planner_weights import weighed
from tests.series_terms import ATOM, DAY_S, window

RDL = window()


def read(form="request", **terms):
    return read_input("reservations", {form: {"reservation": "r", "user": "ann", "rdl": RDL} | terms}, AUTHOR)


def series(**terms):
    return read_input(
        "reservations",
        {"series": {"series": "s", "user": "ann", "every": DAY_S, "start_s": DAY_S, "rdl": RDL} | terms},
        AUTHOR,
    )


# ---------------------------------------------------------------- what is asked for
def test_a_request_without_a_weight_weighs_one():
    assert (read().weight, read("update").weight, series().weight) == (1, 1, 1)
    assert (read(weight=7).weight, read("update", weight=1_000).weight, series(weight=2).weight) == (7, 1_000, 2)


@pytest.mark.parametrize("weight", [0, 1_001, 1.5, "heavy"])
def test_weights_are_whole_numbers_from_1_to_1000(weight):
    with pytest.raises(Malformed) as refused:
        read(weight=weight)
    assert refused.value.field == "request.weight"


def test_another_weight_is_another_request():
    story = one_node_cell()
    assert isinstance(story.take(read(weight=2)), ReservationRequested)
    assert isinstance(story.take(read(weight=2)), InputRepeated)
    assert "other terms" in story.take(read(weight=3)).reason
    story.settle()
    assert isinstance(story.take(read("update", weight=3)), ReservationUpdated)
    assert isinstance(story.take(series(weight=2)), SeriesRequested)
    assert isinstance(story.take(series(weight=2)), InputRepeated)
    assert "names another series" in story.take(series(weight=4)).reason


def test_an_occurrence_weighs_what_its_series_does():
    state = State()
    rdl = json.dumps({"op": "window", "s": 0, "e": 3_600, "of": ATOM})
    for name, weight in (("light", 1), ("heavy", 9)):
        state.series[name] = Series("ann", "default", rdl, str(DAY_S), "UTC", DAY_S, 1, weight=weight)
    sent = Occurrences(lambda: 0.0, lambda *_: None).due(state)
    weights = {each["request"]["series"]: each["request"].get("weight", 1) for each in sent}
    assert weights == {"light": 1, "heavy": 9}


def test_the_command_line_sends_it_and_shows_it(tmp_path):
    file = tmp_path / "r.json"
    file.write_text(json.dumps(RDL))
    source = Wanted(str(file), weight=5).read("r")
    assert read_request("r", source, "UTC")[0]["weight"] == 5
    assert [each["weight"] for each in read_series("s", source, "UTC", "0 6 * * *")] == [5, 5]
    assert "weight" not in read_request("r", Wanted(str(file)).read("r"), "UTC")[0]
    shown = {"reservation": "r", "user": "ann", "queue": "q", "state": "requested", "requested_ms": 0, "answer": None}
    shown |= {"moved": 0, "moved_why": "", "steps": []}
    assert "weight" in one_reservation(shown | {"weight": 5})
    assert "weight" not in one_reservation(shown | {"weight": 1})
    asked = {"series": "s", "user": "ann", "queue": "q", "every": "60", "zone": "UTC", "start_s": 0, "occurrences": 0}
    assert "weight" in one_series(asked | {"weight": 5}, [])


def test_over_http_it_stands_in_the_answer_and_in_a_dry_run():
    now_s = int(time.time())
    rdl = {"op": "window", "s": now_s, "e": now_s + 3_600, "of": ATOM}
    request = {"reservation": "r", "user": "ann", "rdl": rdl}

    async def story(cell):
        dry = await cell.http.post("/v1/reservations", json=request | {"weight": 3}, params={"dry_run": "true"})
        real = await cell.http.post("/v1/reservations", json=request | {"weight": 3})
        wrong = await cell.http.post("/v1/reservations", json=request | {"weight": 0})
        return dry.json(), real.json(), wrong

    dry, real, wrong = run_in_memory(story)
    assert (dry["weight"], real["weight"]) == (3, 3)
    assert wrong.status_code == 422


def test_the_view_has_the_weight_of_the_terms_in_force():
    view = View()

    def fold(body):
        RESERVATION_FOLDS[type(body)](view, Record(type(body).__name__, 1, "c", 1, 1, 0, "", "", body))

    fold(ReservationRequested("r", "ann", json.dumps(RDL), weight=2))
    fold(Plans(1, [PlanAnswer("r", accepted=True)]))
    for accepted_now, weight in ((False, 2), (True, 6)):
        fold(ReservationUpdated("r", "ann", json.dumps(RDL), weight=6))
        assert reservation_document(view.reservations["r"])["weight"] == 2
        fold(Plans(1, [PlanAnswer("r", accepted=accepted_now, reason="" if accepted_now else "no_room")]))
        assert reservation_document(view.reservations["r"])["weight"] == weight


# ---------------------------------------------------------------- what it counts for
def test_the_heavier_of_two_is_kept_though_it_is_larger():
    """Alone, breaking the small one would lose less."""
    cell = two_nodes()
    small, large = reservation("small", flat(cores=3, minutes=30)), reservation("large", flat(cores=4, minutes=55))
    small.body.weight = 2
    cell.then(large, small)
    cell.settle(at=0)
    cell.then(node_lost("n1"))
    while cell.round(at=1_000) is not None:
        pass
    assert list(cell.promised) == ["small"]


def test_the_heaviest_of_those_that_are_broken_is_restored_first():
    cell = two_nodes(reservation_agent="early")
    cell.then(weighed("light", 4, 0, 40, 1), weighed("heavy", 4, 0, 40, 5))
    cell.settle(at=0)
    cell.then(node_lost("n1"), node_lost("n2"))
    while cell.round(at=1_000) is not None:
        pass
    assert not cell.promised
    cell.then(registered("n1", epoch="e2", cpu=4_000))
    while cell.round(at=2_000) is not None:
        pass
    assert list(cell.promised) == ["heavy"]
    assert [each["weight"] for each in question_of(cell.story.state, 0)["promises"]] == [5]


def test_what_a_plan_costs_is_weighed():
    class Of:
        class book:  # noqa: N801
            capacity = (10,)

    atom = Atom("0", (5,), 1, 1, 1, 4, 0, 10)
    plan = [(atom, [Lease(0, 4, 1)])]
    one, other = cost({"a": plan}, Of, {"a": 1}), cost({"a": plan}, Of, {"a": 3})
    assert other == (3 * one[0], 3 * one[1])


def test_the_program_rejects_the_lighter_and_moves_it_first():
    model = Model([10], 4, 1)
    node = {"path": "0", "unit": [5], "gang": 1, "gangs_most": 1, "lease": 1, "work": 2, "begin": 0, "end": 4}
    model.request(0, node, must=False, weight=2, heaviest=10)
    model.request(1, node, must=False, weight=10, heaviest=10)
    light, heavy = (model.program.cost[served] for served in model.served)
    assert heavy == 5 * light < 0
    costs = [cost for cost in model.program.cost if cost > 0]
    assert sum(costs[len(costs) // 2 :]) == pytest.approx(5 * sum(costs[: len(costs) // 2]))
    assert sum(costs) < -light


@pytest.mark.slow
@pytest.mark.parametrize(("weights", "kept"), [((1, 5), "r2"), ((5, 1), "r1")])
def test_the_solver_accepts_the_heavier_of_two_that_do_not_fit_beside_each_other(weights, kept):
    pytest.importorskip("highspy", reason="the extra `planner` is not installed")
    model = [{"path": "0", "unit": [1], "gang": 6, "gangs_most": 1, "lease": 3, "work": 3, "begin": 0, "end": 4}] * 2
    requests = [{"node": node, "must": False, "weight": weight} for node, weight in zip(model, weights, strict=True)]
    problem = {"capacity": [10], "horizon": 4, "used": [], "requests": requests, "time_limit_s": 60}
    plans = solve(problem)["plans"]
    assert [f"r{i}" for i, plan in enumerate(plans, 1) if plan] == [kept]


def test_a_problem_names_a_weight_that_is_none():
    with pytest.raises(BadProblem, match=r"input.sequence\[0\].weight: has to be a"):
        ask({"op": "submit", "id": "r", "user": "u", "rdl": gang(1, 60), "weight": 1_001})
