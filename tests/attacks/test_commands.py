"""Commands that are led to somebody else, or told what controls a terminal."""

import json

import pytest

from services.cli.trust import HELP
from tests.attacks.listed import Attack, Target, check_names, named
from tests.tls_files import tls_files
from tests.unit.cli_here import largesse
from tests.unit.stub_server import respond, serving
from tests.unit.test_cli_terminal import DRAWN, answer

TARGET = Target("Commands", "`largesse` with a token, against a server of the attacker's, which never sees the token.")
ASK = ("get", "jobs")
TOKEN = "lgt_0123456789"


class Elsewhere:
    """A server that notes what it was sent, and answers as it is told. `to`: where it sends who asks."""

    def __init__(self):
        self.heard, self.to = "", ""

    def __call__(self, request, body):
        self.heard += f"{request.path}{request.headers}{body.decode()}"
        if self.to:
            respond(request, 307, {"Location": self.to}, b"")
        else:
            respond(request, 200, {"Content-Type": "application/json"}, json.dumps({"jobs": []}).encode())


def why(said):
    """What stands behind the address in the refusal."""
    assert (said.code, said.out) == (3, "")
    return said.err.partition(": no answer from ")[2].partition(": ")[2].partition("\n")[0]


def impostor(names=(), **dates):
    """A gateway that shows a certificate of the authority that is trusted, but not this one."""

    def story(folder):
        files, stub = tls_files(folder / "tls", *names, **dates), Elsewhere()
        with serving(stub, tls=files.serving()) as url:
            said = largesse(*ASK, LARGESSE_URL=url, LARGESSE_CA_FILE=str(files.ca), LARGESSE_TOKEN=TOKEN)
        assert stub.heard == ""
        return why(said)

    return story


def of_another_authority(folder):
    files, stub = tls_files(folder / "tls"), Elsewhere()
    trusted = tls_files(folder / "trusted").ca
    with serving(stub, tls=files.serving()) as url:
        said = largesse(*ASK, LARGESSE_URL=url, LARGESSE_CA_FILE=str(trusted), LARGESSE_TOKEN=TOKEN)
    assert stub.heard == ""
    return why(said)


def redirected(folder):
    there, here = Elsewhere(), Elsewhere()
    with serving(there) as elsewhere, serving(here) as url:
        here.to = f"{elsewhere}/v1/jobs"
        largesse(*ASK, LARGESSE_URL=url, LARGESSE_TOKEN=TOKEN)
    assert TOKEN in here.heard  # To the gateway that was named it goes.
    assert TOKEN not in there.heard
    return "no token is sent on"


def another_context(folder):
    """The current context's token is its own gateway's, whatever `--url` names."""
    stub, path = Elsewhere(), folder / "config" / "largesse"
    path.mkdir(parents=True)
    (folder / "token").write_text(TOKEN)
    lines = ['context = "own"', "[contexts.own]", 'url = "http://127.0.0.1:1"', f'token_file = "{folder / "token"}"']
    (path / "config.toml").write_text("\n".join(lines))
    with serving(stub) as url:
        largesse(*ASK, "--url", url, XDG_CONFIG_HOME=str(folder / "config"))
    assert "/v1/jobs" in stub.heard
    assert TOKEN not in stub.heard
    return "no token is sent"


def escapes(*words):
    """Every text of the answer would control a terminal."""

    def story(folder):
        with serving(answer) as url:
            said = largesse(*words, LARGESSE_URL=url, terminal=True, columns=200)
        text = DRAWN.sub("", said.out) + said.err
        assert "PWNED" in text
        assert all(each.isprintable() or each in "\n\t" for each in text)
        return "shown as text"

    return story


ATTACKS = [
    Attack(
        "a gateway of another authority",
        of_another_authority,
        f"its certificate is signed by nobody who is trusted here: {HELP}",
    ),
    Attack(
        "a gateway with the certificate of another name",
        impostor(["cell.example"]),
        "its certificate is not for 127.0.0.1: ask it by a name that the certificate has",
    ),
    Attack(
        "a gateway with an expired certificate",
        impostor(days=-1, since_days=-9),
        "its certificate, or one above it, has expired: the gateway needs a new one",
    ),
    Attack(
        "a gateway with a certificate of the future",
        impostor(days=9, since_days=3),
        "its certificate is not valid yet: check the clocks of this machine and of the gateway's",
    ),
    Attack("a redirect to the attacker's server", redirected, "no token is sent on"),
    Attack("the token of one context to the address of another", another_context, "no token is sent"),
    Attack("terminal injection by names of jobs", escapes("get", "jobs"), "shown as text"),
    Attack("terminal injection by names of nodes", escapes("get", "nodes"), "shown as text"),
    Attack("terminal injection by names of queues", escapes("get", "queues"), "shown as text"),
]
check_names(ATTACKS)


@pytest.mark.parametrize("attack", ATTACKS, ids=named)
def test_is_refused(tmp_path, attack):
    assert attack.story(tmp_path) == attack.refused
