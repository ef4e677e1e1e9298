"""Names that begin with a dash: a command line would take them for options, so nothing new is called like that."""

import pytest

from largesse.settings import SettingWrong, read_settings
from schemas.edge.jobs import read_workload_line
from schemas.edge.read import Malformed, read_cluster, read_input
from services.agent.settings import read_node_settings

STAGE = {"stage": "-s", "tasks": 1, "command": ["-c"], "demand": {"cpu": 1}}
NODE = {"epoch": "-e", "capacity": {"cpu": 1}}


def job(**said):
    return {"stages": [STAGE], **said}


def cluster(name="n", queue="q"):
    return {
        "nodes": [{"name": name, "capacity": {"cpu": 1}}],
        "queues": {"name": "root", "children": [{"name": queue, "children": []}]},
    }


@pytest.mark.parametrize(
    ("read", "field"),
    [
        (lambda: read_input("jobs", job(job="-j"), ""), "job"),
        (lambda: read_input("jobs", job(queue="-q/a"), ""), "queue"),
        (lambda: read_workload_line(job(job="-j", submit_ms=0)), "job"),
        (lambda: read_cluster(cluster(name="-n")), "nodes[0].name"),
        (lambda: read_cluster(cluster(queue="-q")), "queues.children[0].name"),
        (lambda: read_input("config", {"queues": cluster(queue="--all")["queues"]}, ""), "queues.children[0].name"),
        (lambda: read_input("nodes", {"register": {"node": "-n", **NODE}}, ""), "register.node"),
    ],
)
def test_a_job_a_queue_and_a_node_may_not_begin_with_a_dash(read, field):
    with pytest.raises(Malformed, match='may not begin with "-"') as caught:
        read()

    assert caught.value.field == field


def test_what_is_there_under_such_a_name_can_still_be_reported_and_cancelled():
    assert read_input("jobs", {"cancel": "-j"}, "").job == "-j"
    assert read_input("nodes", {"report": {"node": "-n", **NODE}}, "").node == "-n"
    assert read_input("nodes", {"drain": {"node": "-n", "draining": True}}, "").node == "-n"


def test_a_dash_anywhere_else_is_like_any_other_letter():
    assert read_input("jobs", job(job="a-", queue="a/-b"), "").job == "a-"


def test_an_agent_says_so_before_it_starts():
    with pytest.raises(SettingWrong, match="LARGESSE_NODE=-n: may not begin with -"):
        read_node_settings(read_settings({}), {"LARGESSE_NODE": "-n"})
