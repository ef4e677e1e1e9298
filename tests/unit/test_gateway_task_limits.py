"""What a client is told of a job that has more tasks than there may be."""

import pytest

from tests.gateway_cell import JOB, run_in_memory


@pytest.mark.parametrize(
    ("knob", "status", "field"),
    [
        pytest.param("job_tasks_max", 422, "stages", id="of a job: as it is, it is never taken"),
        pytest.param("user_tasks_max", 503, "user", id="of a user: later it may be"),
        pytest.param("live_tasks_max", 503, "job", id="of a cell: later it may be"),
    ],
)
def test_too_many_tasks_are_refused_for_good_or_for_now(knob, status, field):
    async def story(cell):
        assert (await cell.http.put("/v1/config", json={"set": {knob: 1}})).json()["changed"]
        return await cell.post(JOB)

    answer = run_in_memory(story)

    assert answer.status_code == status
    assert answer.json()["type"] == "urn:largesse:refused:too_many_tasks"
    assert answer.json()["field"] == field
    assert knob in answer.json()["detail"]
