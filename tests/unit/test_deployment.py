"""A deployment has one id and one of each secret, whoever asks first and however often."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from pallas.deployment import DataDir
from pallas.errors import SettingsError

ASK = """
import sys
from pathlib import Path
from pallas.deployment import DataDir
sys.stdin.readline()
folder = DataDir(Path(sys.argv[1]))
print(folder.deployment_id(), folder.secret("cookie").hex())
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_folder_is_made_for_its_owner_only(tmp_path: Path) -> None:
    folder = DataDir(tmp_path / "a" / "b")
    assert mode(folder.path) == 0o700
    assert list(folder.path.iterdir()) == []


def test_the_id_is_a_uuid_and_stays(tmp_path: Path) -> None:
    first = DataDir(tmp_path).deployment_id()
    assert str(uuid.UUID(first)) == first
    assert DataDir(tmp_path).deployment_id() == first
    assert mode(tmp_path / "deployment-id") == 0o600


def test_every_secret_is_its_own_and_stays(tmp_path: Path) -> None:
    folder = DataDir(tmp_path)
    cookie, actions = folder.secret("cookie"), folder.secret("actions")
    assert len(cookie) == 32
    assert cookie != actions
    assert DataDir(tmp_path).secret("cookie") == cookie
    assert mode(tmp_path / "secret-cookie") == 0o600


def test_two_folders_are_two_deployments(tmp_path: Path) -> None:
    assert DataDir(tmp_path / "a").deployment_id() != DataDir(tmp_path / "b").deployment_id()


def test_nothing_but_the_values_is_left_in_the_folder(tmp_path: Path) -> None:
    folder = DataDir(tmp_path)
    folder.deployment_id()
    folder.secret("cookie")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deployment-id", "secret-cookie"]


@pytest.mark.parametrize("name", ["", "../x", "a/b", "A", "x" * 60])
def test_a_secret_cannot_be_named_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a secret"):
        DataDir(tmp_path).secret(name)


def test_processes_that_start_at_once_agree(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ASK, str(tmp_path / "data")]
    root = str(Path(__file__).parents[2])
    environ = {**os.environ, "PYTHONPATH": root}
    asking = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ, cwd=root)
        for _ in range(6)
    ]
    for process in asking:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = {process.communicate(timeout=30)[0] for process in asking}
    assert all(process.returncode == 0 for process in asking)
    assert len(answers) == 1
    assert len(answers.pop().split()) == 2


def test_a_file_system_without_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    assert DataDir(tmp_path).deployment_id() == DataDir(tmp_path).deployment_id()
    assert [path.name for path in tmp_path.iterdir()] == ["deployment-id"]
    assert mode(tmp_path / "deployment-id") == 0o600


@pytest.mark.parametrize("where", ["file", "file/below"])
def test_a_file_in_place_of_the_folder_is_refused_with_what_to_do(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SettingsError, match="folder") as caught:
        DataDir(tmp_path / where)
    assert str(tmp_path / where) in str(caught.value)
    assert "--data or PALLAS_DATA_DIR" in str(caught.value)


def test_a_folder_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(SettingsError, match="cannot be used"):
        DataDir(Path("/proc/pallas-data"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(SettingsError, match="Permission denied"):
        DataDir(tmp_path)


@pytest.mark.parametrize("content", [b"not a uuid", b"\xff\xfe", b"x" * 100_000])
def test_a_damaged_id_is_refused_and_not_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "deployment-id").write_bytes(content)
    with pytest.raises(SettingsError, match="is damaged; restore it from a backup, or delete it"):
        DataDir(tmp_path).deployment_id()
    assert (tmp_path / "deployment-id").read_bytes() == content


def test_a_damaged_secret_is_refused_without_showing_it(tmp_path: Path) -> None:
    (tmp_path / "secret-cookie").write_text("canary-3f9a1c7e5b")
    with pytest.raises(SettingsError, match="secret-cookie is damaged") as caught:
        DataDir(tmp_path).secret("cookie")
    assert "canary" not in str(caught.value)


def test_a_folder_in_place_of_the_id_is_refused(tmp_path: Path) -> None:
    (tmp_path / "deployment-id").mkdir()
    with pytest.raises(SettingsError, match="cannot be used: Is a directory"):
        DataDir(tmp_path).deployment_id()
