"""The reservations topic: the shape of a request in RDL, and its canonical text."""

import json

import pytest

from schemas.edge.base import NAME_MAX
from schemas.edge.rdl import RDL_ATOMS_MAX, RDL_BRANCHES_MAX, RDL_DEPTH_MAX, UNITS_MAX
from schemas.edge.read import Malformed, read_input
from schemas.edge.reservations import PROPOSED_LEASES_MAX, PROPOSED_PLANS_MAX
from schemas.plans import ProposedLease
from schemas.reservations import ReservationDeleted, ReservationRequested, ReservationUpdated

ATOM = {"op": "atom", "b": {"cpu": "1"}, "g": 1, "h": 4, "l": 60, "w": 600}


def window(of, s=0, e=3600):
    return {"op": "window", "s": s, "e": e, "of": of}


def several(op, *branches):
    return {"op": op, "of": list(branches)}


def request(rdl, form="request"):
    return {form: {"reservation": "nightly", "user": "bob", "rdl": rdl}}


def refusal(rdl):
    with pytest.raises(Malformed) as refused:
        read_input("reservations", request(rdl), "bob")
    return refused.value


def test_a_request_is_kept_as_canonical_text():
    rdl = window(
        several("order", {"w": 600, "l": 60, "h": 4, "g": 1, "b": {"memory": "1G", "cpu": "0.5"}, "op": "atom"})
    )

    assert read_input("reservations", request(rdl), "bob") == ReservationRequested(
        "nightly",
        "bob",
        '{"op":"window","s":0,"e":3600,"of":{"op":"order","of":'
        '[{"op":"atom","b":{"cpu":"500m","memory":"954Mi"},"g":1,"h":4,"l":60,"w":600}]}}',
        "bob",
    )


def test_canonical_text_is_a_request_of_the_same_meaning():
    taken = read_input(
        "reservations", request(window(several("any", ATOM, several("order_no_gap", ATOM, ATOM)))), "bob"
    )
    assert isinstance(taken, ReservationRequested)

    assert read_input("reservations", request(json.loads(taken.rdl)), "bob") == taken


@pytest.mark.parametrize("op", ["all", "any", "order", "order_no_gap"])
def test_an_update_says_other_terms(op):
    taken = read_input("reservations", request(several(op, ATOM, window(ATOM)), "update"), "bob")

    assert isinstance(taken, ReservationUpdated)
    assert json.loads(taken.rdl)["op"] == op


def test_a_deletion():
    document = {"delete": {"reservation": "nightly", "user": "bob"}}

    assert read_input("reservations", document, "bob") == ReservationDeleted("nightly", "bob", "bob")


def test_who_asks_may_be_someone_else_than_who_sends():
    taken = read_input("reservations", request(ATOM), "gateway")

    assert isinstance(taken, ReservationRequested)
    assert (taken.user, taken.author) == ("bob", "gateway")


@pytest.mark.parametrize(
    ("rdl", "problem"),
    [
        pytest.param({}, 'request.rdl: needs its "op"', id="no op"),
        pytest.param({"op": "atm"}, "request.rdl: op has to be one of 'atom', 'window'", id="no such op"),
        pytest.param([], "request.rdl: has to be an object, is a list", id="no object"),
        pytest.param(window([ATOM]), "request.rdl.of: has to be an object, is a list", id="a window of a list"),
        pytest.param(several("all"), "request.rdl.of: may not be empty", id="no branch"),
        pytest.param(several("all", ATOM, 3), "request.rdl.of[1]: has to be an object, is 3", id="a branch of nothing"),
        pytest.param(window(ATOM, s=10, e=10), "request.rdl.e: is 10: a window has to end after", id="an empty window"),
        pytest.param(window(ATOM, s=-1), "request.rdl.s: has to be at least 0", id="before all time"),
        pytest.param(window(ATOM, e=60.5), "request.rdl.e: has to be a whole number", id="half a second"),
        pytest.param(window(ATOM | {"g": 5}), "request.rdl.of.g: is 5, more than h", id="least above most"),
        pytest.param(window(ATOM | {"g": 0}), "request.rdl.of.g: has to be at least 1", id="no unit"),
        pytest.param(window(ATOM | {"h": UNITS_MAX + 1}), "request.rdl.of.h: has to be at most", id="UNITS_MAX"),
        pytest.param(window(ATOM | {"l": 0}), "request.rdl.of.l: has to be at least 1", id="no lease"),
        pytest.param(window(ATOM | {"w": True}), "request.rdl.of.w: has to be a whole number", id="a boolean"),
        pytest.param(window(ATOM | {"b": {}}), "request.rdl.of.b: a unit has to ask for something", id="an empty unit"),
        pytest.param(window(ATOM | {"b": {"cpu": "x"}}), "request.rdl.of.b.cpu: ", id="no quantity"),
        pytest.param(
            window(ATOM | {"deadline": 1}), "request.rdl.of.deadline: unknown field; known here: b, g", id="extra"
        ),
        pytest.param(several("any", ATOM, {"op": "atom"}), "request.rdl.of[1].b: is missing", id="a half atom"),
        pytest.param({"op": "window", "s": 0, "of": ATOM}, "request.rdl.e: is missing", id="an open window"),
    ],
)
def test_what_is_refused_of_a_request(rdl, problem):
    assert str(refusal(rdl)).startswith(problem)


def proposal(*plans, same=True):
    """Each plan as (from_ms, to_ms) of its leases."""
    return {
        "propose": {
            "after": 0,
            "plans": [
                {
                    "reservation": "r" if same else f"r{i}",
                    "leases": [{"atom": "0", "from_ms": begin, "to_ms": end, "units": 1} for begin, end in leases],
                }
                for i, leases in enumerate(plans)
            ],
        }
    }


def test_a_proposal_is_read_with_as_many_leases_as_it_may_have():
    plans = [[(0, 1)] * (PROPOSED_LEASES_MAX // PROPOSED_PLANS_MAX)] * PROPOSED_PLANS_MAX
    body = read_input("reservations", proposal(*plans, same=False), "planner")
    assert (len(body.plans), body.author) == (PROPOSED_PLANS_MAX, "planner")
    assert body.plans[0].leases[0] == ProposedLease("0", 0, 1, 1)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        pytest.param(
            {},
            'exactly one of "request", "update", "delete", "series", "end_series", "propose" is needed, not 0',
            id="no form",
        ),
        pytest.param({"delete": {"reservation": "a"}}, "delete.user: is missing", id="no owner"),
        pytest.param(
            {"delete": {"reservation": "x" * (NAME_MAX + 1), "user": "b"}}, "delete.reservation: is too long", id="long"
        ),
        pytest.param(proposal(), "propose.plans: ", id="a proposal of nothing"),
        pytest.param(proposal([]), "propose.plans[0].leases: ", id="a plan without leases"),
        pytest.param(
            proposal([(1, 1)]), "propose.plans[0].leases[0].to_ms: is 1: a lease has to end after", id="empty"
        ),
        pytest.param(proposal([(0, 1)], [(0, 1)]), 'propose.plans[1].reservation: "r" stands there twice', id="twice"),
        pytest.param(
            proposal(*([(0, 1)] * 17 for _ in range(PROPOSED_PLANS_MAX)), same=False),
            f"propose.plans: have {17 * PROPOSED_PLANS_MAX} leases together: at most {PROPOSED_LEASES_MAX}",
            id="too many leases",
        ),
        pytest.param({"requst": {}}, 'requst: unknown field; did you mean "request"?', id="a slip"),
    ],
)
def test_what_is_refused_of_a_message(document, problem):
    with pytest.raises(Malformed) as refused:
        read_input("reservations", document, "bob")

    assert str(refused.value).startswith(problem)


def deep(levels):
    rdl = ATOM
    for _ in range(levels - 1):
        rdl = window(rdl)
    return rdl


def test_a_request_as_deep_as_it_may_be():
    read_input("reservations", request(deep(RDL_DEPTH_MAX)), "bob")

    assert "is nested too deep" in refusal(deep(RDL_DEPTH_MAX + 1)).reason


def test_a_request_so_deep_that_nothing_could_walk_it_is_still_only_refused():
    assert "is nested too deep" in refusal(deep(5_000)).reason


def test_a_request_of_as_many_atoms_as_there_may_be():
    read_input("reservations", request(several("all", *[ATOM] * RDL_ATOMS_MAX)), "bob")

    problem = refusal(several("all", several("any", *[ATOM] * RDL_ATOMS_MAX), ATOM))

    assert f"at most {RDL_ATOMS_MAX}" in problem.reason
    assert refusal(several("all", *[ATOM] * (RDL_BRANCHES_MAX + 1))).field == "request.rdl.of"
