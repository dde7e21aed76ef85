"""The folder of a deployment: its id and its secrets, each made once and never again.

Several processes of a deployment start at the same moment and must agree: a value is written to a file of its own and
then linked to its name, which succeeds for exactly one of them; the others read what that one wrote. The folder's loss
makes a new deployment.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from pallas.errors import SettingsError

_ID_FILE = "deployment-id"
_SECRET_BYTES = 32
_SECRET_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}")
_WRITING_LIMIT_S = 2.0


class DataDir:
    """The data folder (`PALLAS_DATA_DIR`); it is created, for its owner only, if it is not there."""

    def __init__(self, path: Path) -> None:
        """Raise SettingsError if the folder cannot be used for writing."""
        self.path = path.absolute()
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            probe = self.path / f".probe-{secrets.token_hex(8)}"
            probe.touch(mode=0o600)
            probe.unlink()
        except OSError as error:
            what = "it is not a folder" if isinstance(error, FileExistsError) else _why(error)
            raise SettingsError(
                f"the data folder {self.path} cannot be used: {what}; give a folder that this user may write, with "
                "--data or PALLAS_DATA_DIR"
            ) from error

    def deployment_id(self) -> str:
        """The id of this deployment, a UUID in lower case; made at the first call."""
        text = self._once(_ID_FILE, lambda: str(uuid.uuid4()))
        try:
            return str(uuid.UUID(text))
        except ValueError:
            raise self._damaged(_ID_FILE, "then this becomes a new deployment") from None

    def known_id(self) -> str | None:
        """The id of this deployment where it has one already; makes none."""
        return self.deployment_id() if (self.path / _ID_FILE).exists() else None

    def secret(self, name: str) -> bytes:
        """32 random bytes under this name (lower case, digits, dashes), the same for every process and restart."""
        if _SECRET_NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} cannot name a secret")
        file = f"secret-{name}"
        text = self._once(file, lambda: secrets.token_hex(_SECRET_BYTES))
        try:
            value = bytes.fromhex(text)
        except ValueError:
            value = b""
        if len(value) != _SECRET_BYTES:
            raise self._damaged(file, "then what it protected must be renewed, such as sign-ins")
        return value

    def _once(self, name: str, make: Callable[[], str]) -> str:
        path = self.path / name
        try:
            if not path.exists():
                self._create(path, make())
            return self._read(path)
        except OSError as error:
            raise SettingsError(
                f"{path} cannot be used: {_why(error)}; run as the user who owns {self.path}, or give another folder "
                "with --data"
            ) from error

    def _create(self, path: Path, text: str) -> None:
        draft = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        try:
            _write(draft, text)
            try:
                os.link(draft, path)
            except FileExistsError:
                return
            except OSError:
                # File systems without links: the name itself is the lock, and readers wait for its content.
                with contextlib.suppress(FileExistsError):
                    _write(path, text)
        finally:
            draft.unlink(missing_ok=True)
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _read(self, path: Path) -> str:
        give_up = time.monotonic() + _WRITING_LIMIT_S
        while True:
            text = path.read_bytes()[:1024].decode("ascii", "replace").strip()
            if text or time.monotonic() >= give_up:
                return text
            time.sleep(0.01)

    def _damaged(self, name: str, then: str) -> SettingsError:
        return SettingsError(f"{self.path / name} is damaged; restore it from a backup, or delete it ({then})")


def _write(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(handle, text.encode() + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__
