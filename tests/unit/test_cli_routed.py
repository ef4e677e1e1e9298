"""What `submit` says of a job for which a router has chosen the cell."""

import json

import pytest

from tests.unit.cli_here import largesse
from tests.unit.stub_server import respond, serving

STAGE = {"stage": "s", "tasks": 1, "command": ["true"], "demand": {"cpu": "1"}}
ROUTED: dict[str, object] = {
    "job": "j",
    "state": "taken",
    "cell": "west",
    "to": None,
    "user": "",
    "queue": "default",
    "number": 1,
    "why": "least_load",
    "outcome": None,
    "problems": [],
    "loads": [],
    "warnings": [],
}
PROBLEM = {"cell": "east", "reason": "unknown_queue", "field": "queue", "detail": 'queue "ads" is not in the tree'}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param({}, "j is in cell west", id="a cell has it"),
        pytest.param({"state": "sent"}, "j was sent to cell west", id="it is on its way"),
        pytest.param({"state": "waiting", "cell": None}, "j waits for a cell that could run it now", id="none has it"),
        pytest.param(
            {"state": "waiting", "cell": None, "problems": [PROBLEM]}, 'east: queue "ads" is not in', id="and why"
        ),
        pytest.param({"state": "ended", "outcome": "succeeded"}, "has ended: it succeeded", id="it is over"),
    ],
)
def test_submit_says_where_the_job_is(answer, said, tmp_path):
    def answering(request, body):
        respond(request, 201, {"Content-Type": "application/json"}, json.dumps(ROUTED | answer).encode())

    file = tmp_path / "job.json"
    file.write_text(json.dumps({"job": "j", "stages": [STAGE]}))
    with serving(answering) as url:
        found = largesse("submit", "--url", url, file)

    assert (found.code, found.out) == (0, "j\n")
    assert said in found.err
