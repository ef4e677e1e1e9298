"""What commands trust where a gateway speaks TLS, and what they say where they do not."""

import json

import pytest

from services.cli.trust import HELP
from tests.tls_files import tls_files
from tests.unit.cli_here import largesse
from tests.unit.stub_server import serving
from tests.unit.test_cli_tokens import Stub

ASK = ("get", "jobs", "--json")


@pytest.fixture
def files(tmp_path):
    return tls_files(tmp_path / "tls")


def a_config(tmp_path, **contexts):
    folder = tmp_path / "config" / "largesse"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f'context = "{next(iter(contexts))}"']
    for name, fields in contexts.items():
        lines += [f"[contexts.{name}]", *(f'{field} = "{value}"' for field, value in fields.items())]
    (folder / "config.toml").write_text("\n".join(lines))
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


def refused(said):
    """Why there was no answer, of a command that ended so."""
    assert (said.code, said.out) == (3, "")
    return said.err.partition(": no answer from ")[2].partition(": ")[2].partition("\n")[0]


def test_the_authorities_of_a_file_are_trusted(files):
    with serving(Stub(), tls=files.serving()) as url:
        said = largesse(*ASK, LARGESSE_URL=url, LARGESSE_CA_FILE=str(files.ca))

    assert (said.code, said.err) == (0, "")


def test_a_certificate_of_nobody_who_is_known_is_not_believed_and_the_way_out_is_told(files, tmp_path):
    other = tls_files(tmp_path / "other")
    with serving(stub := Stub(), tls=files.serving()) as url:
        said = [largesse(*ASK, LARGESSE_URL=url), largesse(*ASK, LARGESSE_URL=url, LARGESSE_CA_FILE=str(other.ca))]

    assert [refused(each) for each in said] == [f"its certificate is signed by nobody who is trusted here: {HELP}"] * 2
    assert stub.asked == []


@pytest.mark.parametrize(
    ("names", "dates", "why"),
    [
        pytest.param(
            ["cell.example"],
            {},
            "its certificate is not for 127.0.0.1: ask it by a name that the certificate has",
            id="another's name",
        ),
        pytest.param(
            [],
            {"days": -1, "since_days": -9},
            "its certificate, or one above it, has expired: the gateway needs a new one",
            id="expired",
        ),
        pytest.param(
            [],
            {"days": 9, "since_days": 3},
            "its certificate is not valid yet: check the clocks of this machine and of the gateway's",
            id="of the future",
        ),
    ],
)
def test_what_is_wrong_with_a_certificate_is_told(tmp_path, names, dates, why):
    files = tls_files(tmp_path / "tls", *names, **dates)
    with serving(stub := Stub(), tls=files.serving()) as url:
        said = largesse(*ASK, LARGESSE_URL=url, LARGESSE_CA_FILE=str(files.ca))

    assert refused(said) == why
    assert stub.asked == []


def test_https_to_a_port_without_tls_is_told():
    with serving(Stub()) as url:
        said = largesse(*ASK, LARGESSE_URL=url.replace("http:", "https:"))

    assert refused(said) == "it does not answer as https; is it http?"


@pytest.mark.parametrize(
    ("text", "why"), [(None, "No such file or directory"), ("nonsense", "has no certificates in PEM")]
)
def test_a_file_of_authorities_that_cannot_be_used_is_named(tmp_path, text, why):
    path = tmp_path / "ca.pem"
    if text is not None:
        path.write_text(text)
    said = largesse(*ASK, LARGESSE_URL="https://127.0.0.1:1", LARGESSE_CA_FILE=str(path), columns=300)

    assert (said.code, f"LARGESSE_CA_FILE: {path}: {why}" in said.err) == (2, True)


def test_over_http_no_file_of_authorities_is_read():
    with serving(Stub()) as url:
        assert largesse(*ASK, LARGESSE_URL=url, LARGESSE_CA_FILE="/nowhere/ca.pem").code == 0


def test_a_context_trusts_its_authorities_for_its_own_gateway_alone(files, tmp_path):
    with serving(Stub(), tls=files.serving()) as url:
        mine = {"url": url, "ca_file": files.ca}
        env = a_config(tmp_path, prod=mine, bare={"url": url})
        own = largesse(*ASK, **env)
        option = largesse(*ASK, "--url", url, **env)
        without = largesse("--context", "bare", *ASK, **env)
        bare_too = largesse("--context", "bare", *ASK, LARGESSE_CA_FILE=str(files.ca), **env)

    assert own.code == 0
    assert [refused(each)[:50] for each in (option, without, bare_too)] == [
        "its certificate is signed by nobody who is trusted"
    ] * 3


def test_the_environment_beats_the_current_context_but_not_one_that_is_named(files, tmp_path):
    with serving(Stub(), tls=files.serving()) as url:
        env = a_config(tmp_path, prod={"url": url, "ca_file": "/nowhere/ca.pem"})
        assert largesse(*ASK, LARGESSE_CA_FILE=str(files.ca), **env).code == 0
        assert largesse("--context", "prod", *ASK, LARGESSE_CA_FILE=str(files.ca), **env).code == 2


def test_a_context_keeps_the_path_and_show_says_which_counts(files, tmp_path):
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    largesse("context", "set", "prod", "--url", "https://cell.example", "--ca-file", str(files.ca), **env)
    listed = json.loads(largesse("context", "list", "--json", **env).out)
    shown = json.loads(largesse("context", "show", "--json", **env).out)

    assert listed[0]["ca_file"] == str(files.ca)
    assert shown["ca_file"] == {"value": str(files.ca), "from": "context prod"}


def test_a_token_goes_to_nobody_whose_certificate_is_not_believed(files):
    with serving(stub := Stub(), tls=files.serving()) as url:
        said = largesse(*ASK, LARGESSE_URL=url, LARGESSE_TOKEN="lgt_secret")

    assert said.code == 3
    assert stub.asked == []
    assert "lgt_secret" not in said.err
