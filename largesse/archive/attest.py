"""Attestations: what an archive had at some time, signed (Ed25519), so that nobody who lacks the key can change it.

    attestations/000000000012-9d61b19deffd5a60.json

An attestation names a manifest by its number and hash, and with it every byte before. Whoever has the public key, kept
elsewhere than the archive, sees that nothing up to there was changed, added or cut off since; what came after the last
attestation, chains alone show.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import orjson
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from pydantic import TypeAdapter, ValidationError

from largesse.archive.manifest import ArchiveDamaged, Noted, fault_in
from largesse.archive.store import NameTaken, Store
from largesse.secret_file import exposed

PrivateKey = Ed25519PrivateKey
PublicKey = Ed25519PublicKey

FORMAT = 1
ATTESTATIONS = "attestations/"
_SIGNED = b"largesse attestation 1\n"
_KEY_BYTES_MAX = 65_535
_FINGERPRINT = 16


class KeyUnusable(ValueError):
    """A file that does not hold a key as it is needed: says why, what helps, and never what stands there."""


@dataclass(frozen=True, slots=True)
class Attestation:
    """What was signed: of manifest `number` its hash, and where its segment ends in the log. `at_ms`: when, by the
    clock of whoever signed. `key`: the public key, in hex.
    """

    cell: str
    number: int
    manifest: str
    seq: int
    time: int
    prefix: str
    at_ms: int
    key: str
    signature: str = ""
    largesse_attestation: int = FORMAT

    @property
    def name(self) -> str:
        """Its name in the store."""
        return f"{ATTESTATIONS}{self.number:012d}-{self.key[:_FINGERPRINT]}.json"

    def signed(self) -> bytes:
        """The bytes that the signature is of."""
        names = (name for name in self.__slots__ if name != "signature")
        return _SIGNED + orjson.dumps({name: getattr(self, name) for name in names})

    def encode(self) -> bytes:
        """Its bytes in the store."""
        return orjson.dumps({name: getattr(self, name) for name in self.__slots__}, option=orjson.OPT_INDENT_2) + b"\n"

    def says(self, noted: Noted) -> bool:
        """Whether a manifest is the one that it names."""
        manifest = noted.manifest
        end = manifest.end
        found = (manifest.cell, manifest.number, noted.sha256, end.seq, end.time, end.prefix)
        return found == (self.cell, self.number, self.manifest, self.seq, self.time, self.prefix)


@dataclass(frozen=True, slots=True)
class Attested:
    """What the attestations of one key come to. `last`: the newest one that holds; `count`: how many do. `wrong`: what
    does not, a line for each.
    """

    last: Attestation | None = None
    count: int = 0
    wrong: list[str] = field(default_factory=list)


def read_private_key(path: str | Path) -> PrivateKey:
    """The key in a PEM file that nobody else on this machine may read. Raises KeyUnusable."""
    data = _pem(path, private=True)
    try:
        key = load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise KeyUnusable(f"{path}: holds no private key in PEM without a passphrase: {_MAKE}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyUnusable(f"{path}: holds another kind of key than Ed25519: {_MAKE}")
    return key


def read_public_key(path: str | Path) -> PublicKey:
    """The public key in a PEM file. Raises KeyUnusable."""
    data = _pem(path, private=False)
    if b"PRIVATE KEY" in data:
        raise KeyUnusable(f"{path}: holds a private key; who verifies needs the public one only: {_PUBLIC}")
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise KeyUnusable(f"{path}: holds no public key in PEM: {_PUBLIC}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise KeyUnusable(f"{path}: holds another kind of key than Ed25519: {_PUBLIC}")
    return key


_MAKE = "`openssl genpkey -algorithm ed25519 -out FILE` makes one"
_PUBLIC = "`openssl pkey -in PRIVATE -pubout -out FILE` writes it"


def _pem(path: str | Path, *, private: bool) -> bytes:
    """Raises KeyUnusable."""
    try:
        with Path(path).open("rb") as file:
            fault = exposed(os.fstat(file.fileno()).st_mode, path) if private else ""
            data = file.read(_KEY_BYTES_MAX)
    except OSError as error:
        raise KeyUnusable(f"{path}: {error.strerror}") from None
    if private and b"PUBLIC KEY" in data:
        raise KeyUnusable(f"{path}: holds a public key; who signs needs the private one: {_MAKE}")
    if fault:
        raise KeyUnusable(f"{path}: {fault}")
    return data


def attest(store: Store, newest: Noted, key: PrivateKey, at_ms: int) -> tuple[Attestation, bool]:
    """Signs the newest manifest, and whether that is new: what this key has signed already stays. Raises
    ArchiveDamaged, StoreError.
    """
    end, public = newest.manifest.end, key.public_key().public_bytes_raw().hex()
    said = (newest.manifest.cell, newest.manifest.number, newest.sha256, end.seq, end.time, end.prefix)
    unsigned = Attestation(*said, at_ms, public)
    signed = Attestation(*said, at_ms, public, key.sign(unsigned.signed()).hex())
    try:
        store.put(signed.name, signed.encode())
    except NameTaken:
        return _checked(store, signed.name, key.public_key(), lambda _: newest), False
    return signed, True


@dataclass(frozen=True, slots=True)
class Signer:
    """Somebody who has signed, by the beginning of the public key: how often, and `number` of the newest manifest."""

    key: str
    count: int
    number: int


def fingerprint(key: PublicKey) -> str:
    """The beginning of a public key, by which its attestations are named."""
    return key.public_bytes_raw().hex()[:_FINGERPRINT]


def signers_in(store: Store) -> list[Signer]:
    """By whose keys there are attestations, by their names alone. Raises StoreError."""
    found: dict[str, list[int]] = {}
    for stored in store.names(ATTESTATIONS):
        number, _, key = stored.name.removeprefix(ATTESTATIONS).removesuffix(".json").partition("-")
        if number.isdecimal() and key:
            found.setdefault(key, []).append(int(number))
    return [Signer(key, len(numbers), max(numbers)) for key, numbers in sorted(found.items())]


def check_attestations(store: Store, manifests: list[Noted], key: PublicKey) -> Attested:
    """What one key has signed of an archive, oldest first. Raises StoreError."""
    mine, wrong, last, count = f"-{fingerprint(key)}.json", list[str](), None, 0

    def named(number: int) -> Noted | None:
        return manifests[number - 1] if 0 < number <= len(manifests) else None

    for stored in store.names(ATTESTATIONS):
        if not stored.name.endswith(mine):
            continue
        try:
            last, count = _checked(store, stored.name, key, named), count + 1
        except ArchiveDamaged as damaged:
            wrong.append(str(damaged))
    return Attested(last, count, wrong)


def _checked(store: Store, name: str, key: PublicKey, named: Callable[[int], Noted | None]) -> Attestation:
    """An attestation that holds. Raises ArchiveDamaged, StoreError."""
    where = f"{store.url}/{name}"
    try:
        found = _reader().validate_json(store.get(name))
        if found.largesse_attestation != FORMAT:
            raise ArchiveDamaged(f"{where}: has format {found.largesse_attestation}; this version reads {FORMAT}")
        key.verify(bytes.fromhex(found.signature), found.signed())
    except ValidationError as error:
        raise ArchiveDamaged(f"{where}: it is no attestation: {fault_in(error)}") from None
    except (InvalidSignature, ValueError):
        raise ArchiveDamaged(f"{where}: its signature is not that of this key: it was changed, or forged") from None
    noted = named(found.number)
    if noted is None:
        gone = f"record {found.seq:,} was in the archive, and is no more: its end was cut off"
        raise ArchiveDamaged(f"{where}: attests manifest {found.number}, which is missing: {gone}")
    if found.name != name or not found.says(noted):
        raise ArchiveDamaged(f"{where}: attests another {noted.manifest.name} than the one here")
    return found


@cache
def _reader() -> TypeAdapter[Attestation]:
    return TypeAdapter(Attestation)
