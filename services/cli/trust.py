"""Whose certificates commands trust where a gateway speaks TLS: the system's authorities, or those of one file."""

import os
from typing import TYPE_CHECKING

from services.cli.contexts import asked, current_context
from services.cli.ending import Wrong
from services.cli.tokens import context_source

if TYPE_CHECKING:  # It takes longer to import than a command whose gateway is on this machine has.
    import ssl

VARIABLE = "LARGESSE_CA_FILE"
SYSTEM = "the system's"
HELP = (
    f"name the file of the authority that signed it in {VARIABLE}, or keep it with `largesse context set NAME --ca-file"
    " FILE`"
)

ISSUER_UNKNOWN = (18, 19, 20, 21)
"""OpenSSL's codes: signed by itself, by somebody else who is, or by somebody who is not known here."""
EXPIRED, NOT_YET, NAME_DIFFERS, ADDRESS_DIFFERS = 10, 9, 62, 64


def ca_file_for(url_source: str) -> tuple[str | None, str]:
    """The file that counts for the gateway that `url_source` names, and what says so; None: the system's authorities.

    That of a context counts for the gateway of that context alone, as its token does. Raises Wrong.
    """
    context = current_context()
    is_its_own = context.name != "" and url_source in (f"--context {context.name}", context_source(context.name))
    path = os.environ.get(VARIABLE, "")
    if context.ca_file is not None and is_its_own and (asked.get() is not None or not path):
        return context.ca_file, f"context {context.name}"
    if asked.get() is not None and is_its_own:
        return None, f"--context {context.name}, which names none"
    return (path, VARIABLE) if path else (None, "nothing that names others")


def trusted(url_source: str) -> "ssl.SSLContext | bool":
    """What httpx is to verify a gateway's certificate with. Raises Wrong, which names the file."""
    path, source = ca_file_for(url_source)
    if path is None:
        return True
    import ssl

    try:
        return ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        raise Wrong(f"{source}: {path}: has no certificates in PEM") from None
    except OSError as error:
        raise Wrong(f"{source}: {path}: {error.strerror}") from None


def fault_of(error: "ssl.SSLCertVerificationError", host: str) -> str:
    """Why a certificate is not believed, and what helps."""
    match error.verify_code:
        case code if code in ISSUER_UNKNOWN:
            return f"its certificate is signed by nobody who is trusted here: {HELP}"
        case code if code in (NAME_DIFFERS, ADDRESS_DIFFERS):
            return f"its certificate is not for {host}: ask it by a name that the certificate has"
        case code if code == EXPIRED:
            return "its certificate, or one above it, has expired: the gateway needs a new one"
        case code if code == NOT_YET:
            return "its certificate is not valid yet: check the clocks of this machine and of the gateway's"
    return f"its certificate is not valid: {error.verify_message}"
