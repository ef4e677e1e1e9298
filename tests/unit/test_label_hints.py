"""What a refusal for labels that no node has says of those that there are."""

import pytest

from schemas import NodeRegistered
from services.gateway.documents.label_hints import label_hint
from tests.gateway_watch import Watched

FIELD = "stages[1].labels"


def cell(*labels):
    found = Watched(nodes=0)
    for i, each in enumerate(labels):
        found.take(NodeRegistered(f"n{i}", "e1", {"cpu": 1_000}, each))
    return found.settle().view


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ({"zoen": "b"}, '; did you mean "zone=b"?'),
        ({"zone": "bb1"}, '; did you mean "zone=bb"?'),
        ({"zone": "bb", "rakc": "7"}, '; did you mean "rack"?'),
        ({"zone": "nowhere"}, ""),
        ({"gpu": "a100"}, ""),
        ({"rack": "1", "zone": "a"}, ""),
    ],
)
def test_labels_that_no_node_has_are_told_with_those_that_there_are(wanted, hint):
    view = cell({"zone": "a"}, {"zone": "bb", "rack": "1"}, {"zone": "b"})

    assert label_hint(view, FIELD, [{}, wanted]) == f"; there is rack=1, zone=a, zone=b, zone=bb{hint}"


def test_of_many_labels_the_first_are_listed():
    view = cell(*[{"zone": f"z{i:02}"} for i in range(12)])

    assert label_hint(view, FIELD, [{}, {"a": "b"}]).endswith("zone=z08, zone=z09 and 2 more")


def test_where_no_node_has_labels_that_is_said():
    assert label_hint(cell({}), FIELD, [{}, {"a": "b"}]) == "; no node has any label"


def test_what_is_refused_for_something_else_says_nothing_of_labels():
    assert label_hint(cell({"zone": "a"}), "stages[1].demand", [{}, {"a": "b"}]) == ""
