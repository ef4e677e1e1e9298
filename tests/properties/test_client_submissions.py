"""However often a request is lost, answered in vain or doubled on its way, one submission is one job."""

import httpx
from hypothesis import settings
from hypothesis import strategies as st

from largesse.client import AsyncClient
from tests.client_rig import QUICK, Faulty
from tests.gateway_cell import STAGE, run_in_memory
from tests.strategies import for_all

FAULTS = st.lists(st.sampled_from(["", "lost", "mute", "twice", 503, 429, 500]), max_size=6)
NAMES = st.sampled_from([None, "a", "b"])


@settings(max_examples=20)
@for_all(st.lists(st.tuples(NAMES, FAULTS), min_size=1, max_size=4))
def test_one_submission_is_one_job_whatever_the_network_does(submissions):
    async def story(cell):
        network = Faulty(httpx.ASGITransport(cell.http._transport.app))
        answers = []
        async with AsyncClient("http://127.0.0.1:8642", user="ann", transport=network, retry=QUICK) as ask:
            for name, faults in submissions:
                network.faults = list(faults)
                answers.append(await ask.submit({"stages": [STAGE]}, name=name))
            return answers, [each["job"] async for each in ask.jobs()]

    answers, jobs = run_in_memory(story)
    named = {name for name, _ in submissions if name is not None}
    unnamed = sum(name is None for name, _ in submissions)
    assert len(jobs) == len(set(jobs)) == len(named) + unnamed
    assert {each["job"] for each in answers} == set(jobs)
    assert {each["state"] for each in answers} <= {"waiting", "repeated"}
