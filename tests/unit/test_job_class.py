"""Small or large, by the largest stage against the cell (DRESS, section 3.2)."""

import pytest

from services.admission.job_class import class_of
from tests.cells import job, stage

CELL = {"cpu": 100_000, "memory": 1_000}
THETA = 100  # Permille.


@pytest.mark.parametrize(
    ("stages", "theta_permille", "said"),
    [
        pytest.param([stage(tasks=10, cpu=1_000, memory=1)], THETA, "small", id="exactly theta is small"),
        pytest.param([stage(tasks=10, cpu=1_001, memory=1)], THETA, "large", id="a base unit a task more is large"),
        pytest.param([stage(cpu=1, memory=101)], THETA, "large", id="any one kind will do"),
        pytest.param([stage("a", 6), stage("b", 6, after=["a"])], THETA, "large", id="memory counts by the stage"),
        pytest.param(
            [stage("a", 10, memory=0), stage("b", 10, memory=0)], THETA, "small", id="stages are not added up"
        ),
        pytest.param(
            [stage("a", 1, memory=0), stage("b", 11, memory=0)], THETA, "large", id="the largest stage decides"
        ),
        pytest.param([stage(demand={"fpga": 1})], THETA, "large", id="what the cell has not got is a lot"),
        pytest.param([stage(cpu=1, memory=1)], 0, "large", id="with theta 0 all are large"),
        pytest.param([stage(tasks=100, memory=10)], 1_000, "small", id="with theta 1000 what fits is small"),
    ],
)
def test_class(stages, theta_permille, said):
    assert class_of(job("j", *stages), CELL, theta_permille) == said


def test_before_any_node_has_come_every_job_is_large():
    assert class_of(job("j"), {}, THETA) == "large"


def test_large_quantities_are_compared_exactly():
    whole = 2**53 - 1
    assert class_of(job("j", stage(demand={"memory": whole // 10})), {"memory": whole}, THETA) == "small"
    assert class_of(job("j", stage(demand={"memory": whole // 10 + 1})), {"memory": whole}, THETA) == "large"
