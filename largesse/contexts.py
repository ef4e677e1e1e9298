"""The user's config file: contexts, each the gateway and the user of one cell, and which of them counts.

`$XDG_CONFIG_HOME/largesse/config.toml`, else `~/.config/largesse/config.toml`:

    context = "prod"                      # the one that counts where nothing else is said

    [contexts.prod]
    url = "https://largesse.example.com"
    user = "ann"                          # may be left out, as `url` may
    token_file = "/home/ann/prod.token"   # of a token for that gateway
    ca_file = "/home/ann/prod-ca.pem"     # of the authorities whose certificates that gateway may show
    cell = "east"                         # of a gateway that serves several

An option beats the environment, the environment beats the context, the context beats the default (largesse/access.py).
Imports little, so that short commands can.
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

VARIABLE = "LARGESSE_CONTEXT"
FILE_BYTES_MAX = 1 << 20
NAME_MAX = 63
_FIELDS = ("url", "user", "token_file", "ca_file", "cell")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class AccessWrong(ValueError):
    """What is said of a cell, and how to reach it, cannot be: names the option, the variable, or file and field."""


@dataclass(frozen=True, slots=True)
class Context:
    """One cell as one user sees it; None: not said. `name` is empty where no context counts. `token_file`: where the
    token lies, which is sent to `url` alone. `ca_file`: whose certificates count there; None: the system's. `cell`:
    which of the gateway's cells is asked; None: its own."""

    name: str = ""
    url: str | None = None
    user: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    cell: str | None = None


@dataclass(slots=True)
class Config:
    """What the file says. `current`: the context that counts, or None."""

    current: str | None = None
    contexts: dict[str, Context] = field(default_factory=dict)


def config_path() -> Path:
    """Where the config file is, or would be. Raises AccessWrong where there is no home folder."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    # A relative path is to be ignored, says the XDG Base Directory Specification.
    if base.startswith("/"):
        return Path(base, "largesse", "config.toml")
    try:
        return Path.home() / ".config" / "largesse" / "config.toml"
    except RuntimeError:
        raise AccessWrong("no home folder, so no config file: set HOME or XDG_CONFIG_HOME") from None


def named(config: Config, name: str, source: str) -> Context:
    """A context of the file. Raises AccessWrong, which names the nearest one."""
    if (found := config.contexts.get(name)) is not None:
        return found
    from schemas.wording import nearest

    close = nearest(name, config.contexts)
    if close is not None:
        text = f'did you mean "{close}"?'
    elif config.contexts:
        text = f"there are: {', '.join(sorted(config.contexts))}"
    else:
        text = "there are none: `largesse context set NAME --url URL` creates one"
    raise AccessWrong(f"{source}: no context {name!r} in {config_path()}: {text}")


def read_config() -> Config:
    """The config file; an empty config where there is none. Raises AccessWrong, which names file and field."""
    path = config_path()
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Config()
    except OSError as error:
        raise AccessWrong(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise AccessWrong(f"{path}: is too large: at most {FILE_BYTES_MAX} bytes, has more")
    import tomllib

    try:
        document = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise AccessWrong(f"{path}: is not valid UTF-8 at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise AccessWrong(f"{path}: is not valid TOML: {error}") from None
    return _checked(document, path)


def _checked(document: dict[str, object], path: Path) -> Config:
    _known(document, ("context", "contexts"), f"{path}")
    tables = document.get("contexts", {})
    if not isinstance(tables, dict):
        raise AccessWrong(f"{path}: contexts: has to be a table, like [contexts.prod]")
    config = Config(_text(document, "context", f"{path}"))
    for name, table in tables.items():
        where = f"{path}: contexts.{name}"
        if (fault := name_fault(name)) is not None:
            raise AccessWrong(f"{where}: a context's name {fault}")
        if not isinstance(table, dict):
            raise AccessWrong(f"{where}: has to be a table with {', '.join(_FIELDS)}")
        _known(table, _FIELDS, where)
        config.contexts[name] = Context(name, *(_text(table, each, where) for each in _FIELDS))
    return config


def _known(table: dict[str, object], names: tuple[str, ...], where: str) -> None:
    for name in table:
        if name not in names:
            from schemas.wording import nearest

            close = nearest(name, names)
            raise AccessWrong(f"{where}: {name}: unknown field" + (f'; did you mean "{close}"?' if close else ""))


def _text(table: dict[str, object], name: str, where: str) -> str | None:
    value = table.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value or not value.isprintable():
        raise AccessWrong(f'{where}: {name}: has to be a text of one line, like {name} = "..."')
    return value


def name_fault(name: str) -> str | None:
    """What is wrong with a context's name; None: nothing."""
    if not 1 <= len(name) <= NAME_MAX:
        return f"has to have 1 to {NAME_MAX} characters"
    if not name.isprintable():
        return "may have no control characters"
    return "may not begin with -, as options do" if name.startswith("-") else None


def write_config(config: Config) -> None:
    """Writes the file again, whole or not at all; comments in it are lost. Raises AccessWrong where it cannot be."""
    path = config_path()
    lines = [f"context = {_quoted(config.current)}"] if config.current is not None else []
    for name, context in config.contexts.items():
        table = name if _BARE.fullmatch(name) else _quoted(name)
        lines += ["", f"[contexts.{table}]"]
        said = [(key, getattr(context, key)) for key in _FIELDS]
        lines += [f"{key} = {_quoted(value)}" for key, value in said if value is not None]
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # Readable by its owner alone: an address can hold a password.
            beside.touch(0o600)
            beside.write_text("\n".join([*lines, ""]).lstrip("\n"), encoding="utf-8")
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise AccessWrong(f"{path}: cannot be written: {error.strerror}") from None


def _quoted(text: str) -> str:
    """A TOML basic string of a printable text."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
