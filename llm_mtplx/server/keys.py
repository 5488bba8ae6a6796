"""API keys: one a line in a file that only its owner can read."""

import contextlib
import hashlib
import hmac
import ipaddress
import os
import secrets
from pathlib import Path

import llm

from ..errors import MtplxError


def keys_path() -> Path:
    return Path(llm.user_dir()) / "mtplx" / "api-keys"


def read_keys() -> list[str]:
    try:
        lines = keys_path().read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise MtplxError(f"{keys_path()} cannot be read: {error}.") from None
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def make_key() -> str | None:
    """A new key, where there is none yet. It is shown once: only the file has it afterwards."""
    if read_keys():
        return None
    path = keys_path()
    key = f"mtplx-{secrets.token_urlsafe(32)}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{key}\n")
    return key


def matching(offered: str, keys: list[str]) -> str | None:
    """The key that ``offered`` is; the time taken does not tell which, or how nearly."""
    found = None
    for key in keys:
        if hmac.compare_digest(offered.encode(), key.encode()):
            found = key
    return found


def salt(key: str) -> str:
    """What keeps the states of one key from those of another."""
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
