"""The token that commands send: from a file or the environment, never from the command line, where others see it."""

import os
from pathlib import Path

from largesse.secret_file import exposed
from largesse.token_text import JWT_CHARACTERS_MAX, can_be_sent
from services.cli.contexts import asked, config_path, current_context
from services.cli.ending import Wrong

FILE_VARIABLE, VARIABLE = "LARGESSE_TOKEN_FILE", "LARGESSE_TOKEN"


def token_for(url_source: str) -> tuple[str | None, str]:
    """The token for the gateway that `url_source` names, and what says so; None: there is none. Raises Wrong.

    The token of a context goes to the gateway of that context alone, so not where `--url` or LARGESSE_URL names one;
    that of the environment to the gateway of whatever counts, but for a context that `--context` names.
    """
    context = current_context()
    is_its_own = context.name != "" and url_source in (f"--context {context.name}", context_source(context.name))
    if context.token_file is not None and is_its_own and (asked.get() is not None or not _in_environment()):
        return _read(context.token_file, f"contexts.{context.name}.token_file"), f"context {context.name}"
    if asked.get() is not None and is_its_own:
        return None, f"--context {context.name}, which names none"
    if path := os.environ.get(FILE_VARIABLE, ""):
        return _read(path, FILE_VARIABLE), FILE_VARIABLE
    if text := os.environ.get(VARIABLE, ""):
        return checked_token(text, VARIABLE), VARIABLE
    return None, "nothing that names one"


def context_source(name: str) -> str:
    """What says a value that a context has."""
    return f"context {name} in {config_path()}"


def _in_environment() -> bool:
    return bool(os.environ.get(FILE_VARIABLE) or os.environ.get(VARIABLE))


def _read(path: str, source: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data, fault = file.read(JWT_CHARACTERS_MAX + 2), exposed(os.fstat(file.fileno()).st_mode, path)
    except OSError as error:
        raise Wrong(f"{source}: {path}: {error.strerror}") from None
    if fault:
        raise Wrong(f"{source}: {path}: {fault}")
    return checked_token(data.decode("latin-1").strip(), f"{source}: {path}")


def checked_token(text: str, source: str) -> str:
    """A token as a header can carry it. Raises Wrong, which does not repeat it."""
    if not can_be_sent(text):
        raise Wrong(f"{source}: is no token: it has to be one word, as `largesse token make` wrote it")
    return text
