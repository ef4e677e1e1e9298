"""`largesse token`, and what commands send of a token: where, and where not."""

import asyncio
import json
import stat
from hashlib import sha256

import pytest

from largesse.bus.file.bus import FileBus
from largesse.bus.memory import MemoryBus
from largesse.bus.port import Outgoing
from largesse.settings import Settings
from schemas import TokenMade
from services.admission import sequencer
from services.cli import straight
from services.cli.access import SECRET_BYTES, roles_of
from services.cli.ending import Wrong
from tests.secret_files import keep
from tests.token_cell import request_of, secret
from tests.unit.cli_here import largesse
from tests.unit.stub_server import respond, serving

TOKEN = secret("t")


class Stub:
    """A gateway that answers everything alike, and keeps what it was asked."""

    def __init__(self, document=None, status=200, headers=None):
        self.document = document if document is not None else {"jobs": [], "user": "ann"}
        self.status, self.headers, self.asked = status, headers or {}, []

    def __call__(self, request, body):
        self.asked.append((request.command, request.path, dict(request.headers), body))
        headers = {"Content-Type": "application/json"} | self.headers
        respond(request, self.status, headers, json.dumps(self.document).encode())

    @property
    def sent(self):
        return [(headers.get("Authorization"), headers.get("Largesse-User")) for _, _, headers, _ in self.asked]


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    return keep(path, f"{TOKEN}\n")


def a_context(tmp_path, url, token_file, name="prod"):
    folder = tmp_path / "config" / "largesse"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f'context = "{name}"', f"[contexts.{name}]", f'url = "{url}"', f'token_file = "{token_file}"']
    (folder / "config.toml").write_text("\n".join(lines))
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


# ---------------------------------------------------------------- what is sent
def test_a_token_of_the_environment_is_sent_and_no_other_name_beside_it(token_file):
    stub = Stub()
    with serving(stub) as url:
        largesse("get", "jobs", LARGESSE_URL=url, LARGESSE_TOKEN_FILE=str(token_file), LARGESSE_USER="bob")
        largesse("get", "jobs", LARGESSE_URL=url, LARGESSE_TOKEN=TOKEN)
        largesse("get", "jobs", LARGESSE_URL=url, LARGESSE_USER="bob")

    assert stub.sent == [(f"Bearer {TOKEN}", None), (f"Bearer {TOKEN}", None), (None, "bob")]


def test_the_cell_that_is_asked_for_is_said_with_every_request(tmp_path):
    stub = Stub()
    with serving(stub) as url:
        largesse("--cell", "east", "get", "jobs", LARGESSE_URL=url)
        largesse("--cell", "east", "watch", "j", LARGESSE_URL=url)
        largesse("get", "jobs", LARGESSE_URL=url)
        refused = largesse("--cell", "a/b", "get", "jobs", LARGESSE_URL=url)

    said = [headers.get("Largesse-Cell") for _, _, headers, _ in stub.asked]
    assert (said[0], set(said[1:-1]), said[-1]) == ("east", {"east"}, None)
    assert refused.code == 2
    assert "--cell: 'a/b' has to be" in refused.err


def test_a_context_sends_its_token_to_its_own_gateway_and_to_no_other(tmp_path, token_file):
    own, other = Stub(), Stub()
    with serving(own) as url, serving(other) as elsewhere:
        env = a_context(tmp_path, url, token_file)
        largesse("get", "jobs", **env)
        largesse("get", "jobs", "--url", elsewhere, **env)
        largesse("get", "jobs", LARGESSE_URL=elsewhere, **env)
        largesse("--context", "prod", "get", "jobs", LARGESSE_URL=elsewhere, LARGESSE_TOKEN="lgt_other", **env)

    assert [token for token, _ in own.sent] == [f"Bearer {TOKEN}"] * 2
    assert [token for token, _ in other.sent] == [None, None]


def test_a_context_that_is_asked_for_and_has_no_token_gets_none_of_the_environment(tmp_path):
    stub = Stub()
    with serving(stub) as url:
        env = a_context(tmp_path, url, "x")
        path = tmp_path / "config" / "largesse" / "config.toml"
        path.write_text("\n".join(line for line in path.read_text().splitlines() if "token_file" not in line))
        largesse("--context", "prod", "get", "jobs", LARGESSE_TOKEN=TOKEN, **env)

    assert [token for token, _ in stub.sent] == [None]


def test_a_token_does_not_follow_a_redirect(token_file):
    target = Stub()
    with serving(target) as elsewhere:
        stub = Stub({}, 307, {"Location": f"{elsewhere}/v1/jobs"})
        with serving(stub) as url:
            said = largesse("get", "jobs", LARGESSE_URL=url, LARGESSE_TOKEN_FILE=str(token_file))

    assert (said.code, len(stub.asked), target.asked) == (3, 1, [])
    assert TOKEN not in said.out + said.err


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param("", "is no token", id="empty"),
        pytest.param("two words", "is no token", id="two words"),
        pytest.param("x" * 600, "is no token", id="long"),
        pytest.param("a\x1b[2Jb", "is no token", id="escapes"),
    ],
)
def test_what_is_no_token_is_refused_with_its_source_and_not_repeated(tmp_path, content, text):
    path = tmp_path / "token"
    keep(path, content)

    said = largesse("get", "jobs", LARGESSE_TOKEN_FILE=str(path))

    assert said.code == 2
    assert f"LARGESSE_TOKEN_FILE: {path}: {text}" in said.err
    assert not content or content not in said.err


def test_a_missing_file_is_named():
    said = largesse("get", "jobs", LARGESSE_TOKEN_FILE="/nowhere/token")

    assert (said.code, "LARGESSE_TOKEN_FILE: /nowhere/token: No such file" in said.err) == (2, True)


def test_a_refusal_says_which_token_would_do():
    detail = "this needs a token of the role viewer"
    problem = {"type": "urn:largesse:unauthenticated", "title": "x", "status": 401, "detail": detail, "role": "viewer"}
    with serving(Stub(problem, 401)) as url:
        said = largesse("get", "jobs", LARGESSE_URL=url)

    assert (said.code, detail in said.err) == (1, True)


def test_a_context_keeps_the_path_of_a_token_and_show_says_only_that_there_is_one(tmp_path, token_file):
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    largesse("context", "set", "prod", "--url", "http://127.0.0.1:1", "--token-file", str(token_file), **env)
    shown = largesse("context", "show", "--json", **env)
    listed = largesse("context", "list", "--json", **env)

    assert json.loads(shown.out)["token"] == {"value": "sent", "from": "context prod"}
    assert json.loads(listed.out)[0]["token_file"] == str(token_file)
    assert TOKEN not in shown.out + listed.out


def test_a_reservation_is_asked_for_as_the_user_of_the_token(tmp_path, token_file):
    stub = Stub({"user": "ann", "state": "accepted", "series": []}, 404)
    with serving(stub) as url:
        largesse("reserve", "delete", "r", LARGESSE_URL=url, LARGESSE_TOKEN_FILE=str(token_file))

    assert stub.asked[0][1] == "/v1/session"


# ---------------------------------------------------------------- making them
def test_a_token_is_drawn_here_and_only_its_hash_is_sent(tmp_path):
    stub = Stub({"name": "t", "roles": ["viewer"]}, 201)
    with serving(stub) as url:
        said = largesse(
            "token", "make", "t", "--user", "ann", "--role", "submitter:a,b", "--role", "viewer", "--url", url
        )
        again = largesse("token", "make", "t", "--user", "ann", "--role", "viewer", "--url", url)

    text = said.out.strip()
    sent = json.loads(stub.asked[0][3])
    assert said.code == 0
    assert text.startswith("lgt_")
    assert len(text) == len("lgt_") + -(-SECRET_BYTES * 8 // 6)
    assert sent == {
        "name": "t",
        "user": "ann",
        "roles": [{"role": "submitter", "queues": ["a", "b"]}, {"role": "viewer"}],
        "sha256": sha256(text.encode()).hexdigest(),
    }
    assert text not in said.err + repr(stub.asked)
    assert again.out.strip() != text


def test_a_token_goes_to_a_file_of_its_owner_alone_and_never_over_another_one(tmp_path):
    path = tmp_path / "token"
    with serving(Stub({"name": "t", "roles": ["viewer"]}, 201)) as url:
        make = ("token", "make", "t", "--user", "ann", "--role", "viewer", "--out", path, "--url", url)
        said, again = largesse(*make), largesse(*make)

    assert (said.code, said.out, stat.S_IMODE(path.stat().st_mode)) == (0, "", 0o600)
    assert path.read_text().startswith("lgt_")
    assert f"export LARGESSE_TOKEN_FILE={path}" in said.err
    assert (again.code, "is there already" in again.err) == (2, True)


def test_a_token_that_is_refused_leaves_no_file(tmp_path):
    problem = {"type": "urn:largesse:refused:input", "title": "x", "status": 409, "detail": "names another token"}
    path = tmp_path / "token"
    with serving(Stub(problem, 409)) as url:
        said = largesse("token", "make", "t", "--user", "a", "--role", "viewer", "--out", path, "--url", url)

    assert (said.code, path.exists()) == (1, False)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        pytest.param(("--role", "root"), "--role: has to be one of viewer, submitter, operator, admin", id="role"),
        pytest.param(("--role", "submitter:"), "names no queue", id="no queue"),
        pytest.param(("--role", "operator:ads"), "--role: are only for the role submitter", id="queues of an operator"),
        pytest.param(("--role", "viewer", "--expires", "90"), "--expires: '90' has no unit", id="no unit"),
        pytest.param(("--role", "viewer", "--bus", "x", "--url", "http://y"), "--bus: goes past", id="two places"),
        pytest.param(("--role", "viewer", "--bus", "/nowhere"), "there is no journal in this folder", id="no cell"),
    ],
)
def test_wrong_usage_names_the_option(words, text):
    said = largesse("token", "make", "t", "--user", "ann", *words)

    assert said.code == 2
    assert text in " ".join(said.err.split())


def test_a_role_without_a_colon_is_for_everything():
    assert roles_of(["submitter"]) == [{"role": "submitter"}]
    with pytest.raises(Wrong):
        roles_of(["submitters"])


# ---------------------------------------------------------------- straight to the bus
def test_a_cell_that_runs_answers_over_its_bus_without_a_sequencer_beside_its_own():
    async def story():
        bus, stop = MemoryBus(), asyncio.Event()
        closed = bus.close
        settings = Settings(bus="kafka://broker:9092")
        leading = asyncio.ensure_future(sequencer.run(bus, settings, stop=stop))
        monkey = pytest.MonkeyPatch()
        monkey.setattr(bus, "close", _nothing)  # It is the cell's.
        try:
            request = {"make": request_of("root", "ann", [{"role": "admin"}])}

            async def ask(follower):
                answer = await follower.send("access", request, "ann", 60)
                return answer.record, list(follower.state.tokens)

            found = await straight._asked(bus, settings, ask)
            claims = [each for each in await bus.fetch("cluster.log", 0, 0) if b"SequencerClaimed" in each.value]
            return *found, len(claims)
        finally:
            monkey.undo()
            stop.set()
            await leading
            await closed()

    record, tokens, claims = asyncio.run(story())
    assert (type(record.body), record.body.author, tokens, claims) == (TokenMade, "ann", ["root"], 1)


async def _nothing():
    pass


def test_tokens_are_made_listed_and_revoked_on_the_bus_of_a_cell_that_does_not_run(tmp_path):
    data = tmp_path / "data"

    async def begin():
        bus = FileBus(data / "bus")
        await bus.writer().send([Outgoing("nodes", 0, b"{}", headers={})])
        await bus.close()

    (data / "bus").mkdir(parents=True)
    asyncio.run(begin())
    made = largesse("token", "make", "root", "--user", "ann", "--role", "admin", "--bus", data, "--json", columns=200)
    refused = largesse("token", "make", "root", "--user", "ann", "--role", "admin", "--bus", data)
    listed = largesse("token", "list", "--bus", data, "--json")
    revoked = largesse("token", "revoke", "root", "--bus", data)
    unknown = largesse("token", "revoke", "root", "--bus", data)

    assert made.code == 0, made.err
    assert json.loads(made.out)["token"].startswith("lgt_")
    assert "sha256" not in made.out
    assert (refused.code, '"root" names another token' in refused.err) == (1, True)
    (row,) = json.loads(listed.out)
    assert (row["name"], row["user"], row["roles"], row["state"]) == ("root", "ann", ["admin"], "live")
    assert (revoked.code, unknown.code) == (0, 1)
    assert json.loads(made.out)["token"].encode() not in b"".join(
        path.read_bytes() for path in data.rglob("*") if path.is_file()
    )
