"""`python -m services.cli.secrets_folder FOLDER`: makes what `docker-compose.secure.yml` needs to know who is who.

An authority and certificates that it has signed, a password for each principal of Kafka, what the broker checks them
against, and the texts of an admin's token and of one for monitoring. All files are for their owner alone. What is there
stays as it is: to have something made again, delete it first.
"""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import pbkdf2_hmac
from pathlib import Path

from largesse.secret_file import secret_in
from schemas.principals import PRINCIPALS
from services.cli.access import new_text

ADMIN = "admin"
USERS = (ADMIN, *(principal.name for principal in PRINCIPALS))
"""Of Kafka: `admin` is a superuser, who sets the rights of the others."""
HERE = ("DNS:localhost", "IP:127.0.0.1")
PEER_NAME = "peer.largesse"
"""For which the certificates of all peers are: containers have addresses that nobody knows before."""
PEERS = (
    "admission", "fairness", "altruism", "leftover", "estimator", "planner", "gateway", "router", "bridge", "agent",
    "edge",
)  # fmt: skip
MONITOR = "monitor"
"""Asks the ports of the others, and has none."""
SERVERS = {"kafka": ("DNS:kafka", *HERE), "mosquitto": ("DNS:mosquitto",), "gateway": ("DNS:gateway", *HERE)} | {
    f"peers/{peer}": (f"DNS:{PEER_NAME}", f"DNS:{peer}", *HERE) for peer in (*PEERS, MONITOR)
}
"""Who shows a certificate, by its file, and the names that it is for."""
TOKENS = ("admin", MONITOR)
MECHANISM = "SCRAM-SHA-512"
ITERATIONS = 8_192
PASSWORD_BYTES, SALT_BYTES = 32, 24
AUTHORITY_DAYS, SERVER_DAYS = 3_650, 825
PRIVATE_FOLDER, PRIVATE = 0o700, 0o600


class NoOpenssl(Exception):
    """There is no `openssl`, or it did not do what it was asked for: says so."""


def make_secrets(folder: Path) -> list[str]:
    """Makes what is missing in a folder; the names of what it made. Raises NoOpenssl, OSError, SecretUnreadable."""
    for each in (folder, folder / "kafka", folder / "peers"):
        each.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    return [str(path.relative_to(folder)) for path in (*_certificates(folder), *_passwords(folder))]


def _certificates(folder: Path) -> Iterator[Path]:
    key, authority = folder / "ca.key", folder / "ca.pem"
    if not key.exists() and not authority.exists():
        with _apart(folder) as apart:
            _key(apart / "key")
            _openssl(
                *("req", "-x509", "-new", "-key", apart / "key", "-days", AUTHORITY_DAYS, "-subj", "/CN=Largesse"),
                *("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign"),
                *("-out", apart / "certificate"),
            )
            yield _put(key, (apart / "key").read_bytes())
            yield _put(authority, (apart / "certificate").read_bytes())
    for server, names in SERVERS.items():
        if not (folder / f"{server}.pem").exists():
            yield _put(folder / f"{server}.pem", _signed(folder, server, names))


def _signed(folder: Path, server: str, names: Sequence[str]) -> bytes:
    """A private key, and the certificate that belongs to it, as one text in PEM."""
    with _apart(folder) as apart:
        (apart / "names").write_text(
            f"subjectAltName={','.join(names)}\nextendedKeyUsage={_use(server)}\nbasicConstraints=critical,CA:FALSE\n"
        )
        _key(apart / "key")
        subject = server.rpartition("/")[2]
        _openssl("req", "-new", "-key", apart / "key", "-subj", f"/CN={subject}", "-out", apart / "request")
        _openssl(
            *("x509", "-req", "-in", apart / "request", "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key"),
            *("-set_serial", f"0x{secrets.token_hex(16)}", "-days", SERVER_DAYS, "-extfile", apart / "names"),
            *("-out", apart / "certificate"),
        )
        return (apart / "key").read_bytes() + (apart / "certificate").read_bytes()


def _use(server: str) -> str:
    """Peers ask each other; who only asks serves nothing, and who only serves asks nobody."""
    if server == f"peers/{MONITOR}":
        return "clientAuth"
    return "serverAuth,clientAuth" if server.startswith("peers/") else "serverAuth"


def _passwords(folder: Path) -> Iterator[Path]:
    for user in USERS:
        path = folder / "kafka" / f"{user}.password"
        if not path.exists():
            yield _put(path, f"{secrets.token_urlsafe(PASSWORD_BYTES)}\n".encode())
    users = folder / "kafka" / "users"
    if not users.exists():
        lines = [scram_of(user, secret_in(folder / "kafka" / f"{user}.password")) for user in USERS]
        yield _put(users, "".join(f"{line}\n" for line in lines).encode())
    for name in TOKENS:
        token = folder / f"{name}.token"
        if not token.exists():
            yield _put(token, f"{new_text()}\n".encode())


def scram_of(user: str, password: str) -> str:
    """What a broker is formatted with: enough to know the password by, and not the password."""
    salt = secrets.token_bytes(SALT_BYTES)
    salted = pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS)
    said = f'name={user},salt="{b64encode(salt).decode()}",saltedpassword="{b64encode(salted).decode()}"'
    return f"{MECHANISM}=[{said},iterations={ITERATIONS}]"


def _key(path: Path) -> None:
    _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path)


@contextmanager
def _apart(folder: Path) -> Iterator[Path]:
    """A folder for what is on the way, gone afterwards."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as apart:
        yield Path(apart)


def _openssl(*words: object) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise NoOpenssl("certificates are made by openssl, which is not here (Debian: apt-get install openssl)")
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoOpenssl(f"openssl {words[0]}: {done.stderr.strip()}")


def _put(path: Path, content: bytes) -> Path:
    """A new file for its owner alone, whole or not at all. Raises FileExistsError and other OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(handle)
    return path


def main(arguments: list[str]) -> int:
    """The command. Returns its exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m services.cli.secrets_folder FOLDER\n")
        return 2
    folder = Path(arguments[0])
    try:
        made = make_secrets(folder)
    except (NoOpenssl, OSError, ValueError) as error:
        sys.stderr.write(f"{folder}: {error}\n")
        return 1
    sys.stdout.write("".join(f"made {folder / name}\n" for name in made) or f"{folder}: all there\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
