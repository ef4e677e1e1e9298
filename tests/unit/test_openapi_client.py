"""A client that a generator makes of /openapi.json talks to a real gateway, with no line of its own changed."""

import importlib
import sys

import pytest
from openapi_python_client import generate
from openapi_python_client.config import Config, ConfigFile, MetaType

from tests.gateway_cell import run_in_memory
from tests.http_rig import HOST, run_over_http

PACKAGE = "generated_largesse_client"
STAGE = {"stage": "s", "tasks": 2, "command": ["true"], "demand": {"cpu": "1"}}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """A function that imports a module of the generated client."""
    folder = tmp_path_factory.mktemp("client")
    document = folder / "openapi.json"

    async def fetched(cell):
        return (await cell.http.get("/openapi.json")).content

    document.write_bytes(run_in_memory(fetched))
    # What it runs after the generation (a formatter) changes nothing of what the client does.
    file = ConfigFile(project_name_override=PACKAGE, package_name_override=PACKAGE, post_hooks=[])
    config = Config.from_sources(file, MetaType.NONE, document, "utf-8", True, folder / PACKAGE)
    errors = generate(config=config)
    # Of a body in YAML it says that it makes none; the same body in JSON it does make. It parses no lines of JSON.
    unknown = ("application/yaml", "application/jsonl")
    assert [error for error in errors if not any(kind in str(error) for kind in unknown)] == []
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield lambda name: importlib.import_module(f"{PACKAGE}.{name}")
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]


@pytest.mark.slow
def test_it_submits_follows_lists_and_cancels_and_reads_problems(client):
    models = client("models")

    async def story(served):
        gateway = client("client").Client(base_url=f"http://{HOST}:{served.port}", raise_on_unexpected_status=True)
        ask = Asked(client, gateway)
        config = models.ConfigInput.from_dict({"set": {"seed": 7}})
        assert (await ask("cluster.apply_config", body=config))[1].changed
        spec = models.JobSubmission.from_dict({"job": "j", "stages": [STAGE]})
        said = [await ask("jobs.submit_job", body=spec, largesse_user="ann") for _ in range(2)]
        job = await ask("jobs.get_job", "j")
        listed = await ask("jobs.list_jobs", user="nobody")
        ended = await ask("jobs.cancel_job", "j")
        events = await ask("jobs.watch_job", "j")
        queues, nodes, config = [await ask(f"cluster.{name}") for name in ("get_queues", "list_nodes", "get_config")]
        drained = await ask("cluster.drain_node", "n1", reason="disk")
        missing = await ask("jobs.get_job", "none")
        metrics = await ask("health.get_metrics")
        return said, job, listed, ended, events, queues, nodes, config, drained, missing, metrics

    said, job, listed, ended, events, queues, nodes, config, drained, missing, metrics = run_over_http(story)
    assert [(status, each.job, each.state) for status, each in said] == [(201, "j", "waiting"), (200, "j", "repeated")]
    assert (job[1].author, job[1].stages[0].tasks.total, job[1].ended_ms) == ("ann", 2, None)
    assert listed[1].jobs == []
    assert (ended[0], ended[1].state) == (200, "cancelled")
    assert "event: job\n" in events[1]
    assert [child.queue for child in queues[1].children] == ["default"]
    assert nodes[1].nodes[0].capacity.to_dict() == {"cpu": "4", "memory": "8Gi"}
    assert (config[1].queues, drained[1].drain.reason) == (None, "disk")
    assert (missing[0], missing[1].type_, missing[1].status) == (404, "urn:largesse:unknown_job", 404)
    assert "largesse_jobs" in metrics[1]


class Asked:
    """Calls operations of the generated client: each is (status, what it made of the answer)."""

    def __init__(self, client, gateway):
        self.client, self.gateway = client, gateway

    async def __call__(self, operation, *path, **more):
        answer = await self.client(f"api.{operation}").asyncio_detailed(*path, client=self.gateway, **more)
        return answer.status_code, answer.parsed
