"""How tasks of gangs find each other: ports that the log gives them, and what their agents tell them of it."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import strategies as st

from largesse.lifecycle import node_work as core
from largesse.lifecycle.node_work import Start
from largesse.log.snapshots import dump, load
from largesse.settings import Settings, SettingWrong
from schemas import NodeForgotten
from schemas.edge.base import Malformed
from schemas.edge.nodes import read_node
from schemas.edge.short_forms import TASK_VARIABLES
from services.agent.settings import NodeSettings, read_node_settings
from services.agent.starting import PEERS_MAX, environment
from tests.builders import job, node, stage
from tests.cells import SlowCell
from tests.strategies import for_all

FIRST, LAST = 5_000, 5_019


def offering(name, host="", ports=(FIRST, LAST), **more):
    return replace(node(name, **more), host=host, port_first=ports[0], port_last=ports[1])


def gang(tasks, **more):
    return stage("g", tasks, gang=True, cpu=500, retries=9, **more)


def cell(*nodes, forgetful=False):
    story = SlowCell(forgetful=forgetful)
    story.take(*nodes)
    return story


def held_of(story, name):
    """Task -> (node, port), 0 where it has none, of what a job holds."""
    return {
        key.partition("/")[2]: (at, hold.port)
        for at, each in story.admission.nodes.items()
        for key, hold in each.holds.items()
        if key.startswith(f"{name}/")
    }


def ports_of(story, name):
    """Index of a task of the gang -> (node, port)."""
    held = {int(key.partition("/")[2]): found for key, found in held_of(story, name).items() if key.startswith("g/")}
    return dict(sorted(held.items()))


# ---------------------------------------------------------------- which ports
def test_tasks_of_a_gang_have_ports_of_their_own_and_other_tasks_have_none():
    story = cell(offering("n1", cpu=2_000), offering("n2", cpu=2_000))
    story.take(job("j", gang(6), stage("other", 2, cpu=100)))
    story.settle()

    found = ports_of(story, "j")
    assert [*found] == [0, 1, 2, 3, 4, 5]
    assert all(FIRST <= port <= LAST for _, port in found.values())
    for name in ("n1", "n2"):
        here = [port for at, port in found.values() if at == name]
        assert len(here) == len({*here}) > 0
    assert {port for key, (_, port) in held_of(story, "j").items() if key.startswith("other/")} == {0}


def test_the_next_attempt_has_other_ports():
    story = cell(offering("n1"))
    story.take(job("j", gang(4)))
    seen = []
    for _ in range(4):
        granted = story.settle()
        seen.append({port for _, port in ports_of(story, "j").values()})
        story.fail(*granted, reason="gang")
        story.at(story.time + 100_000)
    assert [len(ports) for ports in seen] == [4] * 4
    assert not any(before & after for before, after in pairwise(seen))


def test_where_a_node_offers_none_or_too_few_are_left_none_is_given():
    story = cell(offering("n1", ports=(0, 0)))
    story.take(job("j", gang(2)))
    story.settle()
    assert ports_of(story, "j") == {0: ("n1", 0), 1: ("n1", 0)}

    story = cell(offering("n1", ports=(7, 9)))
    story.take(job("a", gang(2)), job("b", gang(2)))
    story.settle()
    given = [[port for _, port in ports_of(story, name).values()] for name in "ab"]
    assert sorted(sum(map(bool, ports)) for ports in given) == [0, 2]


class Played:
    """Gangs come, fail, end and are cancelled on nodes of which two share a host; each call is noted."""

    def __init__(self, seed, **options):
        self.dice = Random(seed)
        nodes = [offering("a", "one"), offering("b", "one"), offering("c", ports=(FIRST, FIRST + 5)), node("d")]
        self.story = cell(*nodes, **options)
        self.given = 0

    def step(self):
        what, story = self.dice.choice(["submit", "submit", "end", "fail", "restart"]), self.story
        if what == "submit":
            story.take(job(f"j{len(story.records)}", gang(self.dice.randint(1, 6)), queue="default"))
        elif what == "restart" and story.opening is None:
            story.restore()
        elif running := [name for name in story.admission.jobs if self.held_by(name)]:
            name = self.dice.choice(running)
            last = max(grant.attempt for grant in story.granted if grant.job == name)
            grants = [grant for grant in story.granted if grant.job == name and grant.attempt == last]
            (story.finish if what == "end" else story.fail)(*grants)
        story.at(story.time + self.dice.choice([1, 2_000, 70_000]))
        story.settle()
        self.check()

    def held_by(self, name):
        return held_of(self.story, name)

    def check(self):
        """No two tasks on a host hold the same port, and each has one that its node offers."""
        hosts = {}
        for name, said in self.story.admission.nodes.items():
            for key, held in said.holds.items():
                if held.port:
                    assert said.port_first <= held.port <= said.port_last, key
                    ports = hosts.setdefault(said.host or name, [])
                    assert held.port not in ports, f"{key} has port {held.port}, which another one has"
                    ports.append(held.port)
        self.given += sum(map(len, hosts.values()))


@for_all(st.integers(0, 2**32))
def test_no_two_tasks_on_a_host_have_the_same_port(seed):
    played, twin = Played(seed), Played(seed, forgetful=True)
    for _ in range(25):
        played.step()
        twin.step()
    assert played.story.digest == twin.story.digest, "an answer follows from the log alone"


def test_gangs_in_such_histories_have_ports():
    played = [Played(seed) for seed in range(3)]
    for each in played:
        for _ in range(25):
            each.step()
    assert all(each.given > 20 for each in played)


# ---------------------------------------------------------------- what a task is told
def follow(story, name, upto=None):
    """The agent of a node over the log of a cell."""
    state = core.start(name, "e1")
    for record in story.records[:upto]:
        core.fold(state, record)
    return state


def two_nodes():
    story = cell(offering("n1", "one.example", cpu=1_000), offering("n2", "[fd00::2]", cpu=1_000))
    story.take(job("j", gang(3)))
    story.settle()
    return story


def test_every_task_is_told_where_all_of_them_are_reached_in_order():
    story = two_nodes()
    hosts = {"n1": "one.example", "n2": "[fd00::2]"}
    expected = [f"{hosts[at]}:{port}" for at, port in ports_of(story, "j").values()]

    told = []
    for name in hosts:
        state = load(core.State, dump(follow(story, name)))
        for action in core.take(state, name):
            assert isinstance(action, Start)
            env = environment(action, NodeSettings(name, None), Path("/folder/0.1"))
            told.append((int(env["LARGESSE_TASK_INDEX"]), env["LARGESSE_PEERS"]))
            master, _, port = expected[0].rpartition(":")
            assert (env["LARGESSE_MASTER_ADDR"], env["LARGESSE_MASTER_PORT"]) == (master.strip("[]"), port)
            assert env["LARGESSE_TASK_COUNT"] == "3"
    assert sorted(told) == [(index, ",".join(expected)) for index in range(3)]
    assert len({at for at, _ in ports_of(story, "j").values()}) == 2, "they run on both"


def test_a_gang_beside_a_node_without_ports_is_told_nothing_and_other_tasks_are_neither():
    story = cell(offering("n1", cpu=1_000), node("n2", cpu=1_000))
    story.take(job("j", gang(3)), job("k", stage("s", cpu=100)))
    story.settle()
    for name in ("n1", "n2"):
        for action in core.take(follow(story, name), name):
            assert (
                not {"LARGESSE_PEERS", "LARGESSE_MASTER_ADDR"}
                & environment(action, NodeSettings(name, None), Path("/folder/0.1")).keys()
            )


def test_a_list_that_is_too_long_for_a_variable_is_left_out():
    story = two_nodes()
    (action, *_) = core.take(follow(story, "n1"), "n1")
    peers = ["a" * 100 + ":5000"] * (PEERS_MAX // 100)
    env = environment(replace(action, peers=peers), NodeSettings("n1", None), Path("/folder/0.1"))
    assert "LARGESSE_PEERS" not in env
    assert env["LARGESSE_MASTER_PORT"] == "5000"


def test_peers_of_an_attempt_before_are_not_told():
    story = cell(offering("n1"))
    story.take(job("j", gang(2)))
    granted = story.settle()
    assert follow(story, "n1").jobs["j"].peers["g"]

    story.take(offering("n1", ports=(0, 0), epoch="e2"))
    story.at(story.time + 100_000).settle()
    assert [grant.attempt for grant in story.granted] == [1, 2], granted
    assert follow(story, "n1").jobs["j"].peers == {}


def test_the_host_of_a_node_that_is_forgotten_is_too():
    story = two_nodes()
    state = follow(story, "n1")
    core.fold(state, replace(story.records[-1], body=NodeForgotten("n2")))
    assert state.hosts == {"n1": "one.example"}


def test_a_spec_does_not_set_them_itself():
    assert {"LARGESSE_PEERS", "LARGESSE_MASTER_ADDR", "LARGESSE_MASTER_PORT"} <= {*TASK_VARIABLES}


# ---------------------------------------------------------------- what agents say
def registered(**more):
    return read_node({"register": {"node": "n", "epoch": "e1", "capacity": {"cpu": "1"}, **more}}, "n")


def test_a_registration_names_the_host_and_the_ports():
    body = registered(host="10.0.0.7", port_first=21_000, port_last=21_999)
    assert (body.host, body.port_first, body.port_last) == ("10.0.0.7", 21_000, 21_999)
    assert (registered().host, registered().port_last) == ("", 0)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"host": "a b"}, "register.host"),
        ({"host": "x:80"}, "register.host"),
        ({"port_first": 9, "port_last": 8}, "register.port_last"),
        ({"port_last": 8}, "register.port_last"),
        ({"port_first": 1, "port_last": 65_536}, "register.port_last"),
    ],
)
def test_what_is_wrong_with_them(more, field):
    with pytest.raises(Malformed) as caught:
        registered(**more)
    assert caught.value.field == field


def test_they_are_settings_of_the_agent():
    said = {"LARGESSE_NODE_HOST": "10.0.0.7", "LARGESSE_NODE_PORTS": "30000-30999"}
    read = read_node_settings(Settings(), said)
    assert (read.host, read.ports) == ("10.0.0.7", (30_000, 30_999))
    assert read_node_settings(Settings(), {"LARGESSE_NODE_PORTS": "none"}).ports == (0, 0)


@pytest.mark.parametrize("text", ["21000", "9-8", "0-9", "1-70000", "a-b"])
def test_ports_that_cannot_be(text):
    with pytest.raises(SettingWrong, match="has to be FIRST-LAST, like 21000-28999, or none"):
        read_node_settings(Settings(), {"LARGESSE_NODE_PORTS": text})


def test_a_host_that_cannot_be():
    with pytest.raises(SettingWrong, match="LARGESSE_NODE_HOST=a b: has to be a name or an address of a machine"):
        read_node_settings(Settings(), {"LARGESSE_NODE_HOST": "a b"})
