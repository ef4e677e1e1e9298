"""Certificates for tests, made on the spot, and the files in which servers and clients find them."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

from largesse.tls import read_pair

DAY = timedelta(days=1)
NAMES = ("localhost", "127.0.0.1")


@dataclass
class Files:
    """A certificate, its key, and the authority that signed it. `env`: as a gateway is told."""

    folder: Path
    authority: trustme.CA

    @property
    def cert(self):
        return self.folder / "cert.pem"

    @property
    def key(self):
        return self.folder / "key.pem"

    @property
    def ca(self):
        return self.folder / "ca.pem"

    @property
    def env(self):
        return {"LARGESSE_TLS_CERT_FILE": str(self.cert), "LARGESSE_TLS_KEY_FILE": str(self.key)}

    @property
    def pair(self):
        return read_pair("TLS_CERT_FILE", "TLS_KEY_FILE", self.env)

    def renew(self, *names, days=2, since_days=-1, authority=None):
        """Writes another certificate, with its key, in place of the one that is there."""
        now = datetime.now(UTC)
        dates = {"not_before": now + since_days * DAY, "not_after": now + days * DAY}
        issued = (authority or self.authority).issue_cert(*(names or NAMES), **dates)
        for path, data in (
            (self.cert, b"".join(each.bytes() for each in issued.cert_chain_pems)),
            (self.key, issued.private_key_pem.bytes()),
        ):
            written = path.with_suffix(".new")
            written.write_bytes(data)
            written.chmod(0o600)
            written.replace(path)
        return self

    def serving(self):
        """What a server of the tests shows the certificate with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key)
        return context

    def trust(self):
        """What a client verifies the certificate with."""
        return ssl.create_default_context(cafile=self.ca)


def tls_files(folder, *names, authority=None, **dates):
    """A pair for these names in a folder of its own, signed by an authority of its own unless one is given."""
    folder.mkdir(exist_ok=True)
    found = Files(folder, authority or trustme.CA())
    found.authority.cert_pem.write_to_path(found.ca)
    return found.renew(*names, **dates)
