"""Where an agent asks for results on other nodes: at their agents' addresses, by a bridge, or both."""

import asyncio
from urllib.parse import quote

import pytest

from largesse.agents_http import NoAnswer
from largesse.process.health import Page, served
from largesse.task_results import Listed, WantedResults
from services.agent import peers
from services.agent.peers import NotServed, Silent, by_address, by_bridges
from services.agent.task_output import pages_of
from services.agent.task_results import results_beside
from tests.result_folders import left

WANTED = WantedResults("j", "map", 0, 1, 7)
NOWHERE = "127.0.0.1:1"
GUARD_S = 240


async def nothing():
    return ""


def by_http(pages, story):
    """Runs a story with the address of what answers with these pages."""

    async def run():
        async with asyncio.timeout(GUARD_S), served("127.0.0.1", 0, nothing, pages, seconds=GUARD_S) as port:
            return await asyncio.to_thread(story, f"127.0.0.1:{port}")

    return asyncio.run(run())


class Bridge:
    """A peer that knows one answer, or none. `asked`: for which nodes."""

    def __init__(self, silent=""):
        self.asked, self.silent = [], silent

    def __call__(self, node, wanted):
        self.asked.append(node)
        if self.silent:
            raise Silent(self.silent)
        return Listed(1, ())


def test_an_agent_without_an_address_is_asked_by_a_bridge_and_one_that_has_one_is_not(tmp_path):
    left(tmp_path, {"f": "here"})
    bridge = Bridge()

    def story(address):
        peer = by_address({"n": address, "far": ""}.get, bridge)
        assert [entry.path for entry in peer("n", WANTED).entries] == ["f"]
        assert peer("far", WANTED) == Listed(1, ())
        with pytest.raises(NotServed, match="forgotten"):
            peer("gone", WANTED)

    by_http(results_beside(pages_of("n", tmp_path), "n", tmp_path), story)
    assert bridge.asked == ["far"]


def test_an_agent_that_is_silent_at_its_address_is_asked_by_a_bridge_for_a_while(monkeypatch):
    bridge, tried = Bridge(), []

    def silent(address, *_):
        tried.append(address)
        raise NoAnswer("connection refused")

    monkeypatch.setattr(peers, "mono_ms", lambda: now_ms)
    monkeypatch.setattr(peers, "asked", silent)
    peer = by_address(lambda _: NOWHERE, bridge)
    for now_ms in (0, 10, peers.DETOUR_MS - 1, peers.DETOUR_MS + 5):  # noqa: B007 - read by what is put in above
        assert peer("n", WANTED) == Listed(1, ())
    assert len(tried) == 2, "at first, and again once the while is over"


def test_where_the_bridge_is_silent_too_both_reasons_are_said_and_both_are_asked_again():
    bridge = Bridge("no session")
    peer = by_address(lambda _: NOWHERE, bridge)
    for _ in range(2):
        with pytest.raises(Silent, match=r"127\.0\.0\.1:1: .*refused; no session"):
            peer("n", WANTED)
    assert len(bridge.asked) == 2


def test_without_a_bridge_an_agent_that_says_no_address_is_not_served():
    with pytest.raises(NotServed, match=r"LARGESSE_METRICS_PORT.*LARGESSE_BRIDGES"):
        by_address(lambda _: "")("n", WANTED)


def test_bridges_are_asked_one_after_another_under_the_name_of_the_node(tmp_path):
    left(tmp_path, {"f": "here"})
    node, paths = "edge/..", []
    own = results_beside(pages_of(node, tmp_path), node, tmp_path)

    async def pages(path, query):
        paths.append(path)
        return await own(f"/v1/{path.split('/', 4)[4]}", query)

    def story(address):
        assert [entry.path for entry in by_bridges((NOWHERE, address))(node, WANTED).entries] == ["f"]
        assert by_bridges((address,))(node, WantedResults("j", "map", 3, 1, 7)) is None

    by_http(pages, story)
    assert {path.split("/")[3] for path in paths} == {quote(node, safe="").replace(".", "%2E")}


def test_what_a_bridge_says_in_place_of_an_answer_is_silence():
    async def pages(path, query):
        return Page("504 Gateway Timeout", b'node "n" has not answered\n')

    def story(address):
        with pytest.raises(Silent, match=r'by bridge .*504: node "n" has not answered; by bridge .*refused'):
            by_bridges((address, NOWHERE))("n", WANTED)

    by_http(pages, story)
    assert by_bridges(()) is None
