"""What `make secrets` makes: for its owner alone, once, kept out of images and the repository, and good for what it is
for."""

import shutil
import ssl
import stat
import subprocess
from base64 import b64decode
from contextlib import suppress
from hashlib import pbkdf2_hmac

import pytest
import yaml

from largesse.settings import Settings
from largesse.tls import read_peers
from schemas.principals import PRINCIPALS
from services.cli import secrets_folder
from services.cli.secrets_folder import ADMIN, MONITOR, PEER_NAME, SERVERS, USERS, main, make_secrets, scram_of
from tests.conftest import ROOT

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl here")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("made") / "secrets"
    make_secrets(made)
    return made


@needs_openssl
def test_everything_is_for_its_owner_alone(folder):
    found = [folder, *folder.rglob("*")]

    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_dir()} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_file()} == {0o600}


@needs_openssl
def test_nothing_that_is_there_is_made_again_and_what_is_missing_is(tmp_path, capsys):
    folder = tmp_path / "secrets"
    assert main([str(folder)]) == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main([str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder}: all there\n"
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before

    (folder / "kafka.pem").unlink()
    assert main([str(folder)]) == 0
    assert capsys.readouterr().out == f"made {folder}/kafka.pem\n"
    assert (folder / "kafka.pem").read_bytes() != before.pop(folder / "kafka.pem")
    assert all(path.read_bytes() == content for path, content in before.items())


@needs_openssl
def test_no_secret_is_said(folder, tmp_path, capfd):
    main([str(tmp_path / "secrets")])
    said = "".join(capfd.readouterr())

    for path in (tmp_path / "secrets").rglob("*"):
        if path.is_file() and path.suffix in (".password", ".token"):
            assert path.read_text().strip() not in said


@needs_openssl
@pytest.mark.parametrize("server", [each for each in SERVERS if MONITOR not in each])
def test_a_server_is_trusted_by_its_names_and_by_no_other(folder, server):
    for kind, _, name in (each.partition(":") for each in SERVERS[server]):
        assert kind in ("DNS", "IP")
        assert shakes_hands(folder, server, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        shakes_hands(folder, server, "elsewhere")


def shakes_hands(folder, server: str, name: str) -> bool:
    """A TLS handshake without a network: who trusts the authority asks for `name`."""
    asking = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    answering = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    answering.load_cert_chain(folder / f"{server}.pem")
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(back, there, server_hostname=name)
    serving = answering.wrap_bio(there, back, server_side=True)
    done: dict[ssl.SSLObject, bool] = {}
    while len(done) < 2:
        for side in (client, serving):
            try:
                side.do_handshake()
                done[side] = True
            except ssl.SSLWantReadError:
                continue
    return True


@needs_openssl
def test_each_principal_has_a_password_of_its_own_and_the_broker_none_of_them(folder):
    passwords = {(folder / "kafka" / f"{user}.password").read_text().strip() for user in USERS}
    users = (folder / "kafka" / "users").read_text()

    assert set(USERS) == {ADMIN, *(principal.name for principal in PRINCIPALS)}
    assert len(passwords) == len(USERS)
    assert min(map(len, passwords)) >= 43
    assert not [password for password in passwords if password in users]
    assert [line.partition("name=")[2].partition(",")[0] for line in users.splitlines()] == list(USERS)


def test_what_a_broker_checks_a_password_against_is_salted():
    said = scram_of("gateway", "password")
    fields = dict(each.split("=", 1) for each in said.removeprefix("SCRAM-SHA-512=[").removesuffix("]").split(","))

    salt, salted = (b64decode(fields[name].strip('"')) for name in ("salt", "saltedpassword"))
    assert salted == pbkdf2_hmac("sha512", b"password", salt, int(fields["iterations"]))
    assert scram_of("gateway", "password") != said


def test_without_openssl_it_says_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(secrets_folder.shutil, "which", lambda name: None)

    assert main([str(tmp_path / "secrets")]) == 1
    assert "apt-get install openssl" in capsys.readouterr().err


def test_git_and_images_leave_the_folder_out():
    asked = subprocess.run(["git", "check-ignore", "secrets/ca.key"], cwd=ROOT, capture_output=True, check=False)
    allowed = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]

    assert asked.returncode == 0
    assert allowed[0] == "*"
    assert not [line for line in allowed if "secrets" in line]


@needs_openssl
def test_peers_show_their_certificates_as_servers_and_clients_and_monitoring_only_asks(folder):
    def made(peer):
        files = str(folder / "peers" / f"{peer}.pem")
        return read_peers(
            Settings(
                peer_cert_file=files, peer_key_file=files, peer_ca_file=str(folder / "ca.pem"), peer_name=PEER_NAME
            )
        )

    def talk(client, server):
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        asking = client.client.context().wrap_bio(back, there, server_hostname=PEER_NAME)
        answering = server.server.wrap_bio(there, back, server_side=True)
        for _ in range(4):
            for side in (asking, answering):
                with suppress(ssl.SSLWantReadError):
                    side.do_handshake()
        return answering.getpeercert()["subject"][0][0][1]

    gateway, agent, monitor = made("gateway"), made("agent"), made("monitor")
    assert talk(gateway, agent) == "gateway"
    assert talk(agent, agent) == "agent"
    assert talk(monitor, agent) == "monitor"
    with pytest.raises(ssl.SSLError, match=r"unsuitable certificate purpose|UNSUITABLE"):
        talk(gateway, monitor)


@needs_openssl
@pytest.mark.parametrize("server", ["kafka", "mosquitto", "gateway"])
def test_a_server_that_only_serves_comes_in_nowhere_as_a_peer(folder, server):
    said = subprocess.run(
        ["openssl", "verify", "-CAfile", folder / "ca.pem", "-purpose", "sslclient", folder / f"{server}.pem"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode != 0
    assert "purpose" in said.stdout + said.stderr


def test_each_container_sees_what_is_its_own():
    base = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    secure = yaml.safe_load((ROOT / "docker-compose.secure.yml").read_text())
    sharing = {"topics": "admin", "token": "operator", "config": "operator", "users": "kafka", "edge-a": "edge"}
    sharing |= {"edge-b": "edge", "prometheus": "monitor"}

    for name, service in secure["services"].items():
        mounted = [each.partition(":")[0] for each in service.get("volumes", [])]
        secret = [each for each in mounted if each.startswith("secret-")]
        if name == "secrets":
            assert set(secret) == set(secure["volumes"])
            assert service["network_mode"] == "none"
        else:
            assert secret == [f"secret-{sharing.get(name, name)}"]
            assert "./secrets" not in mounted
    spoken = {name: service.get("environment", {}) for name, service in secure["services"].items()}
    users = {name: said["LARGESSE_KAFKA_USER"] for name, said in spoken.items() if "LARGESSE_KAFKA_USER" in said}
    asking = {name for name, service in base.items() if "LARGESSE_BUS" in service.get("environment", {})}
    assert users == {name: sharing.get(name, name) for name in users}
    # Whoever has the plain bus's address from the base has another one here.
    # The archiver has no principal yet: it is in the plain file alone.
    assert asking - set(users) == {"archive", "config", "passwords", "edge-a", "edge-b"}
    assert all(spoken[name]["LARGESSE_BUS"].startswith("kafkas://") for name in users)
