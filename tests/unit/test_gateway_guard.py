"""Over real connections: a gateway that listens everywhere answers to its own names, and to no page of another site."""

import json

import pytest

from largesse.hosts import hosts_of
from largesse.settings import Settings, SettingWrong, read_settings, served_hosts
from tests.http_rig import JOB, run_over_http

EVERYWHERE = {"address": "0.0.0.0", "hosts": hosts_of("0.0.0.0", "cell.example")}
BODY = json.dumps(JOB).encode()
ASKED = [("POST", "/v1/jobs"), ("DELETE", "/v1/jobs/j"), ("GET", "/v1/jobs"), ("GET", "/metrics"), ("GET", "/nowhere")]


@pytest.mark.parametrize(("method", "path"), [pytest.param(*each, id=" ".join(each)) for each in ASKED])
def test_a_name_that_was_pointed_at_this_machine_gets_nothing_whatever_it_asks_for(method, path):
    async def story(served):
        client = await served.connect("evil.example:8642")
        answer = await client.ask(
            method, path, body=BODY if method == "POST" else b"", origin="http://evil.example:8642"
        )
        return answer, await served.bus.bounds("jobs", 0)

    answer, sent = run_over_http(story, **EVERYWHERE)
    assert (answer.status, answer.document["type"]) == (403, "urn:largesse:origin")
    assert "LARGESSE_HTTP_HOSTS" in answer.document["detail"]
    assert sent == (0, 0)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({}, 201, id="a program"),
        pytest.param({"host": "cell.example"}, 201, id="a listed name"),
        pytest.param({"host": "cell.example", "origin": "https://cell.example"}, 201, id="a page of a listed name"),
        pytest.param({"origin": "http://evil.example"}, 403, id="a page of another origin"),
        pytest.param({"origin": "null"}, 403, id="a page that hides its origin"),
        pytest.param({"sec_fetch_site": "cross-site"}, 403, id="a form of another site"),
    ],
)
def test_a_submission_is_taken_from_programs_and_own_pages(headers, status):
    answer = run_over_http(lambda served: served.ask("POST", "/v1/jobs", body=BODY, **headers), **EVERYWHERE)

    assert answer.status == status


def test_a_gateway_on_loopback_answers_to_no_other_address_either():
    async def story(served):
        return [
            (await served.ask("GET", "/livez", host=host)).status for host in ("localhost", "10.0.0.7", "a.example")
        ]

    assert run_over_http(story) == [200, 403, 403]


def test_the_setting_lists_names_and_one_that_is_none_is_refused_with_the_variable():
    settings = read_settings({"LARGESSE_HTTP_HOSTS": "cell.example, gateway"})
    hosts = served_hosts(settings, "0.0.0.0")

    assert hosts.has("gateway:8642")
    assert hosts.has("cell.example")
    with pytest.raises(SettingWrong, match=r"^LARGESSE_HTTP_HOSTS=http://x: "):
        served_hosts(Settings(http_hosts="http://x"), "127.0.0.1")
