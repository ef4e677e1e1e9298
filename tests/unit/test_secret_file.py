"""Files with a secret: one line, for whom it is meant."""

import pytest

from largesse.secret_file import SecretUnreadable, exposed, secret_in
from tests.secret_files import keep


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_a_file_of_its_owner_and_a_group_is_read(tmp_path, mode):
    path = keep(tmp_path / "secret", "hunter2\n")
    path.chmod(mode)

    assert secret_in(path) == "hunter2"
    assert exposed(mode, path) == ""


@pytest.mark.parametrize("mode", [0o644, 0o444, 0o604, 0o666])
def test_a_file_that_everybody_may_read_is_refused_and_what_helps_is_told(tmp_path, mode):
    path = keep(tmp_path / "secret", "hunter2\n")
    path.chmod(mode)

    with pytest.raises(SecretUnreadable, match=f"everybody on this machine may read it: `chmod o= {path}`") as why:
        secret_in(path)
    assert "hunter2" not in str(why.value)
    path.chmod(mode & ~0o007)
    assert secret_in(path) == "hunter2"
