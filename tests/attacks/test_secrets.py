"""Where somebody looks for secrets: files of others, arguments, logs, records, bundles."""

import gzip
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from largesse.bus.kafka.cluster import Access, AccessWrong, cluster_of
from largesse.mqtt.address import AddressWrong, read_address, read_password
from largesse.tls import CertificateWrong, server_tls
from services.cli.secrets_folder import make_secrets
from tests.attacks.listed import Attack, Target, check_names, named
from tests.live.up_jobs import job, shell
from tests.live.up_process import up
from tests.tls_files import tls_files
from tests.unit.cli_here import largesse

TARGET = Target(
    "Secrets on the machine",
    "`largesse up` whose cell has a token, and files with secrets. `nobody` is another user of the machine.",
)
TOKEN, PASSWORD = "lgt_" + "0123456789" * 4, "hunter2"
NOWHERE, DENIED = "nowhere", "Permission denied"
MODE = "everybody on this machine may read it"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can look as another user"),
]


@dataclass
class Machine:
    """`data`: of the cell, `token`: the text of its admin's. What processes showed and said while it ran."""

    folder: Path
    data: Path
    token: str
    shown: str
    logged: str
    records: str
    bundle: bytes


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("machine")
    for above in (folder, *folder.parents[:2]):
        above.chmod(0o755)
    data, path = folder / "data", folder / "admin.token"
    with up(data, "--verbose") as cell:
        words = ("token", "make", "admin", "--user", "ann", "--role", "admin", "--out", path)
        assert cell.ask(*words).code == 0
        token = path.read_text().strip()
        mine = {"LARGESSE_TOKEN_FILE": str(path)}
        assert cell.ask("submit", "-", stdin=job("j", *shell("env; echo done")), **mine).code == 0
        assert cell.ask("watch", "j", **mine).code == 0
        shown = cell.ask("logs", "j/run/0", **mine).out + arguments()
        _, out, err = cell.end()
    records = largesse("tail", data, "--json", "--last", "1000").out
    assert "TokenMade" in records
    assert largesse("bundle", data, folder / "bundle.gz").code == 0
    bundle = gzip.decompress((folder / "bundle.gz").read_bytes())
    return Machine(folder, data, token, shown, out + err, records, bundle)


def arguments():
    """Of all processes, as everybody on the machine reads them."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal():
                found.append((entry / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(found)


def looks(*words):
    """What another user of the machine sees of a path; FOLDER and DATA stand for the cell's."""

    def story(machine):
        line = " ".join(words).replace("DATA", str(machine.data)).replace("FOLDER", str(machine.folder))
        said = subprocess.run(["sh", "-c", line], user="nobody", capture_output=True, text=True, check=False, cwd="/")
        assert machine.token not in said.stdout
        assert said.returncode != 0, said.stdout[:500]
        return DENIED if DENIED in said.stderr else said.stderr

    return story


def searches(where):
    def story(machine):
        there = getattr(machine, where)
        return NOWHERE if machine.token not in (there if isinstance(there, str) else there.decode()) else where

    return story


def exposed_token(machine):
    path = machine.folder / "exposed.token"
    path.write_text(TOKEN)
    path.chmod(0o644)
    said = largesse("get", "jobs", LARGESSE_URL="http://127.0.0.1:1", LARGESSE_TOKEN_FILE=str(path), columns=300)
    assert (said.code, TOKEN in said.err) == (2, False)
    return MODE if MODE in said.err else said.err


def exposed_key(machine):
    files = tls_files(machine.folder / "tls")
    files.key.chmod(0o644)
    with pytest.raises(CertificateWrong) as why:
        server_tls(files.pair)
    return MODE if MODE in str(why.value) else str(why.value)


def exposed_password(machine):
    path = machine.folder / "exposed.password"
    path.write_text(PASSWORD)
    path.chmod(0o644)
    found = []
    for wrong, read in (
        (AccessWrong, lambda: cluster_of("kafkas://h:1", Access("gateway", str(path), ""))),
        (AddressWrong, lambda: read_password(read_address("mqtts://n1@h"), str(path))),
    ):
        with pytest.raises(wrong) as why:
            read()
        found.append(str(why.value))
    assert not [each for each in found if MODE not in each or PASSWORD in each]
    return MODE


def secrets_of_make(machine):
    make_secrets(machine.folder / "secrets")
    return looks("cat FOLDER/secrets/admin.token FOLDER/secrets/kafka/gateway.password")(machine)


def on_the_command_line(machine):
    said = largesse("get", "jobs", "--token", TOKEN, LARGESSE_URL="http://127.0.0.1:1")
    assert (said.code, TOKEN in said.err) == (2, False)
    return "no such option"


ATTACKS = [
    Attack("the cell's log, by another user", looks("cat DATA/bus/*"), DENIED),
    Attack("list the cell's log, by another user", looks("ls DATA/bus/"), DENIED),
    Attack(
        "output of tasks, by another user",
        looks("cat DATA/nodes/node-0/*/*/*/*/*/stdout DATA/nodes/node-0/jobs/j"),
        DENIED,
    ),
    Attack("the file of a token, by another user", looks("cat FOLDER/admin.token"), DENIED),
    Attack("what `make secrets` has made, by another user", secrets_of_make, DENIED),
    Attack("a token in arguments of processes, or in a task's environment", searches("shown"), NOWHERE),
    Attack("a token in what a cell logs", searches("logged"), NOWHERE),
    Attack("a token in records", searches("records"), NOWHERE),
    Attack("a token in a bundle", searches("bundle"), NOWHERE),
    Attack("a token as an option", on_the_command_line, "no such option"),
    Attack("a token's file that everybody may read", exposed_token, MODE),
    Attack("a certificate's key that everybody may read", exposed_key, MODE),
    Attack("a password's file that everybody may read", exposed_password, MODE),
]
check_names(ATTACKS)


@pytest.mark.parametrize("attack", ATTACKS, ids=named)
def test_is_refused(machine, attack):
    assert attack.story(machine) == attack.refused
