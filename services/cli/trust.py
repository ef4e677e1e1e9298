"""Whose certificates commands trust where a gateway speaks TLS: the system's authorities, or those of one file."""

from typing import TYPE_CHECKING

from largesse.access import CA_VARIABLE, trust_in
from services.cli.contexts import as_wrong, way_in

if TYPE_CHECKING:  # It takes longer to import than a command whose gateway is on this machine has.
    import ssl

SYSTEM = "the system's"
HELP = (
    f"name the file of the authority that signed it in {CA_VARIABLE}, or keep it with `largesse context set NAME"
    " --ca-file FILE`"
)

ISSUER_UNKNOWN = (18, 19, 20, 21)
"""OpenSSL's codes: signed by itself, by somebody else who is, or by somebody who is not known here."""
EXPIRED, NOT_YET, NAME_DIFFERS, ADDRESS_DIFFERS = 10, 9, 62, 64


@as_wrong
def trusted(url_source: str) -> "ssl.SSLContext | bool":
    """What httpx is to verify a gateway's certificate with. Raises Wrong, which names the file."""
    path, source = way_in().ca_file_of(url_source)
    return True if path is None else trust_in(path, source)


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
