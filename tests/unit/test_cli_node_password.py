"""`largesse node password`: what it writes, prints and refuses. That mosquitto takes it: tests/contract."""

import base64
import hashlib
import stat

import pytest

from tests.unit.cli_here import largesse


def line_of(path, name):
    [line] = [line for line in path.read_text().splitlines() if line.startswith(f"{name}:")]
    return line


def is_password(line, password):
    _, kind, rounds, salt, digest = line.partition(":")[2].split("$")
    made = hashlib.pbkdf2_hmac("sha512", password.encode(), base64.b64decode(salt), int(rounds))
    return kind == "7" and base64.b64encode(made).decode() == digest


def test_a_password_is_printed_once_and_kept_as_a_hash(tmp_path):
    passwords = tmp_path / "passwd"
    said = largesse("node", "password", "n1", "--file", passwords)

    assert said.code == 0
    password = said.out.removesuffix("\n")
    assert len(password) > 40
    assert password not in passwords.read_text() + said.err
    assert is_password(line_of(passwords, "n1"), password)
    assert stat.S_IMODE(passwords.stat().st_mode) == 0o600


def test_another_password_replaces_the_node_s_own_line_alone(tmp_path):
    passwords = tmp_path / "passwd"
    largesse("node", "password", "n1", "--file", passwords)
    largesse("node", "password", "n10", "--file", passwords)
    passwords.chmod(0o640)
    before = passwords.read_text()
    said = largesse("node", "password", "n1", "--file", passwords)

    assert "another password" in said.err
    assert line_of(passwords, "n10") in before
    assert line_of(passwords, "n1") not in before
    assert is_password(line_of(passwords, "n1"), said.out.strip())
    assert stat.S_IMODE(passwords.stat().st_mode) == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["passwd"]


def test_it_can_be_written_to_a_file_for_its_owner_alone(tmp_path):
    written = tmp_path / "secret"
    written.write_text("old")
    written.chmod(0o644)
    said = largesse("node", "password", "n1", "--file", tmp_path / "passwd", "--out", written)

    assert (said.code, said.out) == (0, "")
    assert is_password(line_of(tmp_path / "passwd", "n1"), written.read_text().removesuffix("\n"))
    assert stat.S_IMODE(written.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["a/b"], "NAME: has to be"),
        (["a:b"], "NAME: has to be"),
        (["n+"], "NAME: has to be"),
        ([""], "NAME: has to be"),
        (["bridge"], "add --bridge"),
        (["n1", "--bridge"], "with --bridge it is bridge"),
    ],
)
def test_a_name_that_cannot_be_is_refused(tmp_path, words, reason):
    said = largesse("node", "password", *words, "--file", tmp_path / "passwd")

    assert said.code == 2
    assert reason in " ".join(said.err.split())
    assert not (tmp_path / "passwd").exists()


def test_a_file_that_holds_no_passwords_stays_as_it_is(tmp_path):
    (tmp_path / "conf").write_text("listener 1883\n")
    said = largesse("node", "password", "n1", "--file", tmp_path / "conf")

    assert said.code == 2
    assert "no file of passwords" in " ".join(said.err.split())
    assert (tmp_path / "conf").read_text() == "listener 1883\n"


def test_a_folder_that_is_not_there_is_named(tmp_path):
    said = largesse("node", "password", "n1", "--file", tmp_path / "none" / "passwd")

    assert said.code == 2
    assert "No such file" in said.err
