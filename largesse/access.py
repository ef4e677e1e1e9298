"""Which gateway is asked, as whom, and for which of its cells: by an argument, else the environment, else a context.

Each answer comes with what says it, for messages. Imports little, so that short commands can.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from largesse.contexts import VARIABLE as CONTEXT_VARIABLE
from largesse.contexts import AccessWrong, Context, config_path, named, read_config
from largesse.secret_file import exposed
from largesse.token_text import JWT_CHARACTERS_MAX, can_be_sent

if TYPE_CHECKING:  # It takes longer to import than a command whose gateway is on this machine has.
    import ssl

URL_DEFAULT = "http://127.0.0.1:8642"
USER_MAX = 253
USER_HEADER, CELL_HEADER = "Largesse-User", "Largesse-Cell"
TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, CA_VARIABLE = "LARGESSE_TOKEN_FILE", "LARGESSE_TOKEN", "LARGESSE_CA_FILE"
CELL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
CELL_NAME_RULE = "has to be 1 to 63 letters, digits, dots, underscores and hyphens, and begin with a letter or a digit"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Access:
    """What is asked for. `context`, `cell`: by name; None: what the environment or the config file says. `mark`: what
    stands before the names of arguments in messages. All methods raise AccessWrong."""

    context: str | None = None
    cell: str | None = None
    mark: str = ""

    def current(self) -> Context:
        """The context that counts: the one asked for, else LARGESSE_CONTEXT, else the file's `context`; an empty one
        where none is named."""
        source, name = f"{self.mark}context", self.context
        if name is None:
            source, name = CONTEXT_VARIABLE, os.environ.get(CONTEXT_VARIABLE, "") or None
        config = read_config()
        if name is None:
            name = config.current
            if name is None:
                return Context()
            source = f"{config_path()}: context"
        return named(config, name, source)

    def said(self, variable: str, field: str) -> tuple[str, str]:
        """What is said of `field`, and what says it; "" where nothing does. A context that was asked for beats the
        environment; one that is only the current one does not."""
        if self.context is not None and (value := getattr(self.current(), field)) is not None:
            return value, f"{self.mark}context {self.context}"
        if value := os.environ.get(variable, ""):
            return value, variable
        context = self.current()
        value = getattr(context, field)
        return ("", "") if value is None else (value, context_source(context.name))

    def url_of(self, url: str | None) -> tuple[str, str]:
        """The gateway's address. `url`: of the argument."""
        value, source = (url, f"{self.mark}url") if url else self.said("LARGESSE_URL", "url")
        return (checked_url(value, source), source) if value else (URL_DEFAULT, "the default")

    def cell_of(self, url_source: str) -> tuple[str | None, str]:
        """Which of the gateway's cells is asked; None: its own. A context's counts for its gateway alone. `url_source`:
        what says the address."""
        if self.cell is not None:
            return checked_cell(self.cell, f"{self.mark}cell"), f"{self.mark}cell"
        context = self.current()
        if context.cell is not None and (context.url is None or self._is_its_own(context, url_source)):
            return checked_cell(context.cell, f"contexts.{context.name}.cell"), context_source(context.name)
        return None, "the gateway"

    def token_of(self, url_source: str) -> tuple[str | None, str]:
        """The token for the gateway that `url_source` names; None: there is none.

        The token of a context goes to the gateway of that context alone, so not where an argument or LARGESSE_URL names
        one; that of the environment to the gateway of whatever counts, but for a context that was asked for by name.
        """
        context = self.current()
        is_its_own = self._is_its_own(context, url_source)
        in_environment = bool(os.environ.get(TOKEN_FILE_VARIABLE) or os.environ.get(TOKEN_VARIABLE))
        if context.token_file is not None and is_its_own and (self.context is not None or not in_environment):
            source = f"contexts.{context.name}.token_file"
            return token_in(context.token_file, source), f"context {context.name}"
        if self.context is not None and is_its_own:
            return None, f"{self.mark}context {context.name}, which names none"
        if path := os.environ.get(TOKEN_FILE_VARIABLE, ""):
            return token_in(path, TOKEN_FILE_VARIABLE), TOKEN_FILE_VARIABLE
        if text := os.environ.get(TOKEN_VARIABLE, ""):
            return checked_token(text, TOKEN_VARIABLE), TOKEN_VARIABLE
        return None, "nothing that names one"

    def ca_file_of(self, url_source: str) -> tuple[str | None, str]:
        """The file of the authorities that count for the gateway that `url_source` names; None: the system's. That of
        a context counts for the gateway of that context alone, as its token does."""
        context = self.current()
        is_its_own = self._is_its_own(context, url_source)
        path = os.environ.get(CA_VARIABLE, "")
        if context.ca_file is not None and is_its_own and (self.context is not None or not path):
            return context.ca_file, f"context {context.name}"
        if self.context is not None and is_its_own:
            return None, f"{self.mark}context {context.name}, which names none"
        return (path, CA_VARIABLE) if path else (None, "nothing that names others")

    def _is_its_own(self, context: Context, url_source: str) -> bool:
        """Whether the gateway that `url_source` names is that of a context."""
        return context.name != "" and url_source in (
            f"{self.mark}context {context.name}",
            context_source(context.name),
        )


def context_source(name: str) -> str:
    """What says a value that a context has."""
    return f"context {name} in {config_path()}"


def account() -> str:
    """Who runs this process, as far as the machine says it."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def header_of(name: str) -> str:
    """A user's name as a header can carry it."""
    return name.encode("ascii", "replace").decode()


def headers_of(token: str | None, user: str, cell: str | None) -> dict[str, str]:
    """What requests say: who asks, and which cell. Where a token says who asks, nothing else does."""
    asker = {USER_HEADER: header_of(user)} if token is None else {"Authorization": f"Bearer {token}"}
    return asker | ({CELL_HEADER: cell} if cell is not None else {})


def is_proxied(url: str) -> bool:
    """Whether the proxies of the environment count for a gateway: none has business with what runs on this machine."""
    return urlsplit(url).hostname not in _LOOPBACK


def trust_in(path: str, source: str) -> "ssl.SSLContext":
    """With what a gateway's certificate is verified, by a file of authorities. Raises AccessWrong."""
    import ssl

    try:
        return ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        raise AccessWrong(f"{source}: {path}: has no certificates in PEM") from None
    except OSError as error:
        raise AccessWrong(f"{source}: {path}: {error.strerror}") from None


def token_in(path: str, source: str) -> str:
    """The token that stands in a file. Raises AccessWrong, which does not repeat it."""
    try:
        with Path(path).open("rb") as file:
            data, fault = file.read(JWT_CHARACTERS_MAX + 2), exposed(os.fstat(file.fileno()).st_mode, path)
    except OSError as error:
        raise AccessWrong(f"{source}: {path}: {error.strerror}") from None
    if fault:
        raise AccessWrong(f"{source}: {path}: {fault}")
    return checked_token(data.decode("latin-1").strip(), f"{source}: {path}")


def checked_token(text: str, source: str) -> str:
    """A token as a header can carry it. Raises AccessWrong, which does not repeat it."""
    if not can_be_sent(text):
        raise AccessWrong(f"{source}: is no token: it has to be one word, as `largesse token make` wrote it")
    return text


def checked_url(url: str, source: str) -> str:
    """An address of a gateway, without a slash at its end. Raises AccessWrong that names the source."""
    url = url.rstrip("/")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # Of a port, or an IPv6 address.
        good = False
    if not good or not url.isprintable() or " " in url:
        raise AccessWrong(f"{source}: {url} is not the address of a gateway: write {URL_DEFAULT}")
    return url


def checked_cell(name: str, source: str) -> str:
    """A cell's name. Raises AccessWrong that names the source."""
    if not CELL_NAME.fullmatch(name):
        raise AccessWrong(f"{source}: {name!r} {CELL_NAME_RULE}")
    return name


def checked_user(name: str, source: str) -> str:
    """A user's name. Raises AccessWrong that names the source."""
    if not 1 <= len(name) <= USER_MAX or not name.isprintable():
        raise AccessWrong(f"{source}: has to be 1 to {USER_MAX} characters without control characters")
    return name


def job_path(job: str) -> str:
    """Where a job is."""
    return f"/v1/jobs/{step(job)}"


def task_path(job: str, stage: str, index: int | str, what: str) -> str:
    """Where what a task printed or left is."""
    return f"/v1/tasks/{step(job)}/{step(stage)}/{index}/{what}"


def step(name: str) -> str:
    """A name as one step of a path; `.` and `..` are names, too, and lead nowhere else."""
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")
