"""A server answers to its own names, and not to pages that were led to it."""

import socket

import pytest
import yaml

from largesse.hosts import Hosts, HostsWrong, hosts_of
from tests.conftest import ROOT

HERE = socket.gethostname()


@pytest.mark.parametrize(
    ("bound", "listed", "host", "served"),
    [
        pytest.param("127.0.0.1", "", "127.0.0.1:8642", True, id="the address it listens at"),
        pytest.param("127.0.0.1", "", "localhost", True, id="a loopback name without a port"),
        pytest.param("127.0.0.1", "", "LocalHost.:8642", True, id="names have no case, and may end in a dot"),
        pytest.param("127.0.0.1", "", "[::1]:8642", True, id="the loopback address of version 6"),
        pytest.param("127.0.0.1", "", "127.8.9.1:8642", True, id="any loopback address"),
        pytest.param("127.0.0.1", "", f"{HERE}:8642", True, id="the machine's own name"),
        pytest.param("127.0.0.1", "", "evil.example:8642", False, id="a name that was pointed here"),
        pytest.param("127.0.0.1", "", "10.0.0.7:8642", False, id="an address that it does not listen at"),
        pytest.param("127.0.0.1", "", "localhost.evil.example", False, id="a name that begins well"),
        pytest.param("127.0.0.1", "", "127.0.0.1.evil.example", False, id="a name that begins as an address"),
        pytest.param("127.0.0.1", "", "127.0.0.1@evil.example", False, id="something else than a host"),
        pytest.param("127.0.0.1", "", "", False, id="an empty name"),
        pytest.param("0.0.0.0", "", "10.0.0.7:8642", True, id="everywhere: any address may be its own"),
        pytest.param("::", "", "[fe80::1]:8642", True, id="everywhere: any address of version 6"),
        pytest.param("0.0.0.0", "", "evil.example", False, id="everywhere: a name may be anybody's"),
        pytest.param("0.0.0.0", "gateway, cell.example", "cell.example:443", True, id="a name that is listed"),
        pytest.param("0.0.0.0", "gateway,cell.example", "other.cell.example", False, id="nothing below a listed name"),
        pytest.param("10.0.0.7", "", "10.0.0.7:8642", True, id="the one address it listens at"),
        pytest.param("10.0.0.7", "", "10.0.0.8:8642", False, id="not another one"),
        pytest.param("10.0.0.7", "10.0.0.8", "10.0.0.8:8642", True, id="an address that is listed"),
    ],
)
def test_a_server_answers_to_its_own_names_only(bound, listed, host, served):
    assert (hosts_of(bound, listed).refusal(host) == "") is served


@pytest.mark.parametrize(
    ("headers", "served"),
    [
        pytest.param({}, True, id="a program"),
        pytest.param({"host": None}, True, id="a program that speaks HTTP/1.0"),
        pytest.param({"origin": "http://localhost:8642"}, True, id="a page of its own"),
        pytest.param({"origin": "http://localhost:3000"}, False, id="a page at another port"),
        pytest.param({"origin": "http://evil.example"}, False, id="a page of somebody else"),
        pytest.param({"origin": "null"}, False, id="a page without a name"),
        pytest.param(
            {"origin": "http://localhost:8642", "host": None}, False, id="a page, and no host to compare with"
        ),
        pytest.param({"site": "same-origin"}, True, id="the browser says: of its own"),
        pytest.param({"site": "none"}, True, id="the browser says: typed in"),
        pytest.param({"site": "cross-site"}, False, id="the browser says: from another site"),
    ],
)
def test_pages_of_others_are_refused_and_programs_are_not(headers, served):
    why = hosts_of("127.0.0.1").refusal(**{"host": "localhost:8642"} | headers)

    assert (why == "") is served
    assert served or "LARGESSE_HTTP_HOSTS" in why


@pytest.mark.parametrize("listed", ["http://cell.example", "cell.example:80", "two words", "*", "-x", "a" * 254])
def test_a_list_that_cannot_be_used_names_its_entry(listed):
    with pytest.raises(HostsWrong, match="is no host name"):
        hosts_of("127.0.0.1", f"good.example,{listed}")


def test_a_name_for_this_machine_from_elsewhere_counts_too():
    assert hosts_of("0.0.0.0", more=["node-7.example"]).has("node-7.example:9464")
    assert not Hosts(("a",)).has("b")


def test_the_containers_of_the_compose_file_answer_to_the_names_by_which_they_are_asked():
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    ours = [name for name, service in compose.items() if service["image"].startswith("largesse") and name != "topics"]
    for name in ours:
        listed = compose[name]["environment"]["LARGESSE_HTTP_HOSTS"].replace("${LARGESSE_HTTP_HOSTS:-}", "")
        hosts = hosts_of("0.0.0.0", listed)

        assert all(hosts.has(f"{each}:9464") for each in ours if each not in ("config", "passwords")), name
        assert hosts.has("127.0.0.1:8642")
        assert not hosts.has("evil.example")
