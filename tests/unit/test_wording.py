"""The nearest name to a mistyped one."""

import pytest

from schemas.wording import nearest

FIELDS = [
    "after",
    "command",
    "demand",
    "duration_ms",
    "durations_ms",
    "estimate_ms",
    "gang",
    "retries",
    "stage",
    "tasks",
]


@pytest.mark.parametrize(
    ("word", "name"),
    [
        pytest.param("commnad", "command", id="two letters swapped"),
        pytest.param("taks", "tasks", id="a letter missing"),
        pytest.param("afterr", "after", id="a letter too many"),
        pytest.param("demant", "demand", id="a wrong letter"),
        pytest.param("Demand", "demand", id="a capital letter"),
        pytest.param("duration", "duration_ms", id="a forgotten unit"),
        pytest.param("estimatems", "estimate_ms", id="a forgotten line"),
        pytest.param("colour", None, id="a word of its own"),
        pytest.param("x", None, id="too short to tell"),
        pytest.param("", None, id="nothing"),
        pytest.param("x" * 10_000, None, id="a very long word"),
    ],
)
def test_the_nearest_field(word, name):
    assert nearest(word, FIELDS) == name


def test_of_two_equally_near_the_first_by_alphabet_is_named():
    assert nearest("prox", ["prod", "prob"]) == "prob"
    assert nearest("prox", ["prob", "prod"]) == "prob"


def test_a_name_is_never_its_own_correction():
    assert nearest("prod", ["prod"]) is None


def test_no_names_no_suggestion():
    assert nearest("prod", []) is None
