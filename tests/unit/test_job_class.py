"""Small or large, by the largest stage against the cell (DRESS, section 3.2)."""

import pytest

from services.admission.job_class import class_of
from tests.builders import job, stage

CELL = {"cpu": 100_000, "memory": 1_000}
THETA = 100  # Permille.


@pytest.mark.parametrize(
    ("stages", "theta_permille", "said"),
    [
        pytest.param([stage(tasks=10, cpu=1_000, memory=1)], THETA, 0, id="exactly theta is small"),
        pytest.param([stage(tasks=10, cpu=1_001, memory=1)], THETA, 1, id="a base unit a task more is large"),
        pytest.param([stage(cpu=1, memory=101)], THETA, 1, id="any one kind will do"),
        pytest.param([stage("a", 6, memory=17), stage("b", memory=1)], THETA, 1, id="memory counts by the stage"),
        pytest.param([stage("a", 10), stage("b", 10)], THETA, 0, id="stages are not added up"),
        pytest.param([stage("a", 1), stage("b", 11)], THETA, 1, id="the largest stage decides"),
        pytest.param([stage(demand={"fpga": 1})], THETA, 1, id="what the cell has not got is a lot"),
        pytest.param([stage(cpu=1, memory=1)], 0, 1, id="with theta 0 all are large"),
        pytest.param([stage(tasks=100, memory=10)], 1_000, 0, id="with theta 1000 what fits is small"),
    ],
)
def test_class(stages, theta_permille, said):
    assert class_of(job("j", *stages), CELL, [theta_permille]) == said


def test_with_theta_1000_none_is_large():
    assert class_of(job("j", stage(tasks=1_000, cpu=1_000)), CELL, [1_000]) == 0


@pytest.mark.parametrize(("cpu", "said"), [(1, 0), (10_000, 0), (10_001, 1), (30_000, 1), (30_001, 2), (200_000, 2)])
def test_with_more_thresholds_the_first_one_that_holds_counts(cpu, said):
    assert class_of(job("j", stage(cpu=cpu)), CELL, [100, 300]) == said


def test_where_nothing_is_available_every_job_is_large():
    assert class_of(job("j"), {}, [THETA]) == 1


def test_large_quantities_are_compared_exactly():
    whole = 2**53 - 1
    assert class_of(job("j", stage(demand={"memory": whole // 10})), {"memory": whole}, [THETA]) == 0
    assert class_of(job("j", stage(demand={"memory": whole // 10 + 1})), {"memory": whole}, [THETA]) == 1
