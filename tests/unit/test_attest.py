"""Attestations: what was signed cannot be changed, cut off or replaced without the key."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from largesse.archive.attest import KeyUnusable, attest, check_attestations, read_private_key, read_public_key
from largesse.archive.manifest import decode, encode, read_all
from largesse.archive.store import FolderStore
from services.replay.source import open_source
from tests.archives import archived, recorded, up_to
from tests.unit.cli_here import largesse

BYTES = 60_000


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("attest") / "log")


@pytest.fixture
def folder(log, tmp_path):
    archived(up_to(open_source(log), 250), tmp_path / "archive", BYTES)
    return tmp_path / "archive"


@pytest.fixture
def keys(tmp_path):
    return written(tmp_path, "mine")


def written(folder, name, private=None, how=None):
    """A pair of files: the private key, closed to others, and the public one."""
    private = private or Ed25519PrivateKey.generate()
    paths = folder / f"{name}.key", folder / f"{name}.pub"
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how or NoEncryption())
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for path, data in zip(paths, (pem, public), strict=True):
        path.write_bytes(data)
        path.chmod(0o600)
    return paths


def attestations(folder):
    return sorted((folder / "attestations").iterdir())


def signed(folder, keys, at_ms=1_000):
    store = FolderStore(folder)
    return attest(store, read_all(store)[-1], read_private_key(keys[0]), at_ms)


def checked(folder, keys):
    store = FolderStore(folder)
    return check_attestations(store, read_all(store), read_public_key(keys[1]))


def test_what_was_signed_holds_and_says_up_to_where(log, folder, keys):
    first, is_new = signed(folder, keys)
    assert is_new
    assert first.seq == read_all(FolderStore(folder))[-1].manifest.end.seq
    archived(log, folder, BYTES)
    second, _ = signed(folder, keys, 2_000)

    found = checked(folder, keys)

    assert (found.last, found.count, found.wrong) == (second, 2, [])


def test_what_this_key_has_signed_already_stays(folder, keys):
    first, _ = signed(folder, keys)

    assert signed(folder, keys, 9_000) == (first, False)
    assert len(attestations(folder)) == 1


def test_attestations_of_other_keys_are_passed_over(folder, keys, tmp_path):
    others = written(tmp_path, "other")
    signed(folder, others)

    assert checked(folder, keys).last is None
    assert checked(folder, others).count == 1


@pytest.mark.parametrize("name", ["cell", "number", "manifest", "seq", "time", "prefix", "at_ms", "key", "signature"])
def test_a_field_that_was_changed_is_found(folder, keys, name):
    signed(folder, keys)
    (path,) = attestations(folder)
    document = json.loads(path.read_bytes())
    value = document[name]
    document[name] = value + 1 if isinstance(value, int) else "00" + value[2:] if name != "cell" else "south"
    path.write_text(json.dumps(document))

    (problem,) = checked(folder, keys).wrong
    assert problem.startswith(f"{path}: its signature is not that of this key")


def test_a_log_that_was_written_again_with_all_its_manifests_is_found(folder, keys, tmp_path):
    """Chains alone would hold: whoever can write everything can make every hash anew, but no signature."""
    signed(folder, keys)
    attested = attestations(folder)
    other = tmp_path / "forged"
    archived(up_to(open_source(recorded(tmp_path / "other", seed=1)), 250), other, BYTES)
    (other / "attestations").mkdir()
    for path in attested:
        os.link(path, other / "attestations" / path.name)

    (problem,) = checked(other, keys).wrong
    assert "attests another manifests/" in problem or "is missing" in problem


def test_an_archive_whose_end_was_cut_off_is_found(folder, keys):
    signed(folder, keys)
    sorted((folder / "manifests").iterdir())[-1].unlink()

    (problem,) = checked(folder, keys).wrong
    assert "which is missing: record " in problem
    assert problem.endswith("its end was cut off")


def test_a_last_manifest_that_was_changed_is_found(folder, keys):
    """No other manifest hangs on the last one."""
    signed(folder, keys)
    path = sorted((folder / "manifests").iterdir())[-1]
    manifest = decode("", path.read_bytes()).manifest
    path.write_bytes(encode(manifest).replace(b'"first_ms": ', b'"first_ms": 1'))

    (problem,) = checked(folder, keys).wrong
    assert f"attests another {manifest.name} than the one here" in problem


def test_an_attestation_in_anothers_place_is_found(log, folder, keys):
    signed(folder, keys)
    archived(log, folder, BYTES)
    signed(folder, keys)
    first, last = attestations(folder)
    last.write_bytes(first.read_bytes())

    (problem,) = checked(folder, keys).wrong
    assert problem.startswith(f"{last}: attests another")


def test_what_is_no_attestation_is_named(folder, keys):
    signed(folder, keys)
    (path,) = attestations(folder)
    path.write_text('{"seq": "many"}')

    assert checked(folder, keys).wrong[0].startswith(f"{path}: it is no attestation: ")


def test_a_private_key_that_others_may_read_is_refused(keys):
    keys[0].chmod(0o644)

    with pytest.raises(KeyUnusable, match=f"chmod o= {keys[0]}"):
        read_private_key(keys[0])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda folder: written(folder, "x", X25519PrivateKey.generate()), "another kind of key than Ed25519"),
        (lambda folder: written(folder, "x", how=BestAvailableEncryption(b"secret")), "without a passphrase"),
        (lambda folder: (folder / "nowhere",) * 2, "No such file"),
        (lambda folder: written(folder, "x")[::-1], "holds a public key; who signs needs the private one"),
    ],
)
def test_other_private_keys_are_refused_with_what_would_be_right(tmp_path, make, says):
    with pytest.raises(KeyUnusable, match=says):
        read_private_key(make(tmp_path)[0])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda folder: written(folder, "x", X25519PrivateKey.generate()), "another kind of key than Ed25519"),
        (lambda folder: (folder / "nowhere",) * 2, "No such file"),
        (lambda folder: written(folder, "x")[::-1], "holds a private key; who verifies needs the public one only"),
        (lambda _: (Path(__file__),) * 2, "no public key in PEM|holds a private key"),
    ],
)
def test_other_public_keys_are_refused_with_what_would_be_right(tmp_path, make, says):
    with pytest.raises(KeyUnusable, match=says):
        read_public_key(make(tmp_path)[1])


def test_the_commands_sign_and_check(log, folder, keys, tmp_path):
    said = largesse("attest", folder, "--key", keys[0], columns=200)
    assert said.code == 0, said.err
    assert said.out.startswith("records 1 to ")
    again = largesse("attest", folder, "--key", keys[0], columns=200)
    assert (again.code, "were attested at" in again.out) == (0, True)
    archived(log, folder, BYTES)

    found = largesse("archive", "verify", folder, "--key", keys[1], "--processes", 1, columns=200)
    assert found.code == 0, found.err
    assert "attested at " in found.out
    assert "attested by nobody with that key yet" in found.err
    assert largesse("archive", "verify", folder, "--key", keys[1], "--processes", 1, "--json").json["attested"]["seq"]
    other = written(tmp_path, "other")[1]
    refused = largesse("archive", "verify", folder, "--key", other, "--processes", 1)
    assert (refused.code, "has attested nothing there" in refused.err) == (1, True)
    signer = attestations(folder)[0].stem.partition("-")[2]
    unknown = largesse("archive", "verify", folder, "--key", other, "--processes", 1, columns=400).err
    assert f"by key {signer} (1 attestation): give the public key of who signs this archive" in unknown
    status = largesse("archive", "status", folder, columns=200)
    assert f"by key {signer} (1 attestation)" in status.out
    listed = largesse("archive", "status", folder, "--json").json["attestations"]
    assert [(each["key"], each["count"]) for each in listed] == [(signer, 1)]
    wrong = largesse("archive", "verify", folder, "--key", keys[0])
    assert (wrong.code, wrong.err.startswith("largesse: --key: ")) == (2, True)
    attestations(folder)[0].write_text("{}")
    broken = largesse("archive", "verify", folder, "--key", keys[1], "--processes", 1, columns=200)
    assert broken.code == 1
    assert "it is no attestation" in broken.out


def test_keys_of_openssl_are_taken(folder, tmp_path):
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    commands = (
        ["openssl", "genpkey", "-algorithm", "ed25519", "-out", private],
        ["openssl", "pkey", "-in", private, "-pubout", "-out", public],
    )
    try:
        for command in commands:
            subprocess.run(list(map(str, command)), check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl here")
    private.chmod(0o600)

    signed(folder, (private, public))
    assert checked(folder, (private, public)).count == 1
