"""The reasons that `why` names are true: without the named obstacle tasks start earlier."""

import pytest

from services.gateway.why.find import why_document
from tests.simulation.why_truth import Verdict, judge, moments_of, recorded, states_at

EARLIER_PERMILLE_LEAST = 950
SEEDS = (1, 2)


def test_without_the_named_obstacle_tasks_start_earlier():
    verdict = Verdict()
    for seed in SEEDS:
        judge(verdict, seed, moments=3, single=3, jobs=40)

    assert verdict.tasks >= 50
    assert len(verdict.judged) >= 4
    assert verdict.permille >= EARLIER_PERMILLE_LEAST, verdict.text() + "\n" + "\n".join(verdict.exceptions)
    assert verdict.unexplained == []


@pytest.mark.parametrize("seed", [3, 4, 5, 6])
def test_what_the_time_of_jobs_went_to_adds_up_at_any_moment(tmp_path, seed):
    source, _ = recorded(tmp_path / "log", seed, 40)
    looked_at, last = 0, None
    for state in states_at(source, moments_of(source, seed, 12)):
        for name, job in state.jobs.items():
            waited = why_document(state, name)["waited"]
            assert sum(waited.values()) == state.time - job.submitted_ms
            looked_at += 1
        last = state
    assert looked_at
    assert last is not None
    assert set(last.clocks) == {job.account.clock for job in last.jobs.values() if job.account.clock}
    ended = [job for job in last.ended.values() if job.outcome != "rejected"]
    assert ended
    for job in ended:
        assert sum(job.waited[0].values()) == job.ended_ms - job.submitted_ms
