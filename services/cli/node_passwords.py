"""Passwords of nodes in a file that mosquitto reads: a line a user, with a salted hash of the password.

The hash is mosquitto's `$7$`: PBKDF2 with SHA-512, which every mosquitto from 2.0 on takes. What is hashed is drawn at
random and long, so that nobody can try it out, and few rounds are enough.
"""

import os
import secrets
import tempfile
from base64 import b64encode
from hashlib import pbkdf2_hmac
from pathlib import Path

from services.cli.ending import Wrong

BRIDGE = "bridge"
"""The user that all bridges share; the rules in infra/mosquitto let it read and write for every node."""
ROUNDS = 1_000
SALT_BYTES = 12  # As many as mosquitto 2.0 takes, and no others.
PASSWORD_BYTES = 32
USER_MAX = 253


def new_password() -> str:
    """A password that nobody guesses, of letters, digits, `-` and `_`."""
    return secrets.token_urlsafe(PASSWORD_BYTES)


def check_user(name: str, is_bridge: bool) -> None:
    """Raises Wrong for a name that no user of the broker can have."""
    if not name or len(name) > USER_MAX or not name.isprintable() or any(each in name for each in ":/+#"):
        raise Wrong(f'NAME: has to be a name of up to {USER_MAX} characters without ":", "/", "+" and "#", is {name!r}')
    if (name == BRIDGE) != is_bridge:
        if is_bridge:
            raise Wrong(f"NAME: with --bridge it is {BRIDGE}, the user that infra/mosquitto/largesse.acl names")
        raise Wrong(f"NAME: {BRIDGE} is the user of bridges, who may speak for every node: add --bridge if you mean it")


def hashed(password: str, salt: bytes) -> str:
    """As mosquitto_passwd writes it."""
    digest = pbkdf2_hmac("sha512", password.encode(), salt, ROUNDS)
    return f"$7${ROUNDS}${b64encode(salt).decode()}${b64encode(digest).decode()}"


def set_password(path: Path, name: str, password: str) -> bool:
    """Gives a user a password in the file, which is made where there is none; whether the user had one before. Raises
    OSError, Wrong.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        lines = []
    except UnicodeDecodeError:
        raise Wrong(f"--file: {path} is no file of passwords") from None
    if any(":" not in line for line in lines if line and not line.startswith("#")):
        raise Wrong(f"--file: {path} is no file of passwords: each line has to be a user, a colon and a hash")
    others = [line for line in lines if line.partition(":")[0] != name]
    line = f"{name}:{hashed(password, secrets.token_bytes(SALT_BYTES))}"
    replace(path, "".join(f"{each}\n" for each in (*others, line)), like=path if path.exists() else None)
    return len(others) < len(lines)


def replace(path: Path, text: str, *, like: Path | None = None) -> None:
    """Puts a file in place in one step, for its owner alone, or with mode and owner of another one. Raises OSError."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            if like is not None:
                known = like.stat()
                os.fchmod(file.fileno(), known.st_mode & 0o777)
                if (known.st_uid, known.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(file.fileno(), known.st_uid, known.st_gid)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
