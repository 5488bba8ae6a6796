"""Hugging Face's hub, as far as a download needs it. Errors are one line that says what to do.

The client speaks the protocol; the environment is read when used, not when the client is imported.
"""

import contextlib
import io
import json
import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import hf_hub_url
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

from ..errors import MtplxError

TIMEOUT_S = 30.0
HASH = re.compile(r"[0-9a-f]{40,64}")
SMALL_FILES = (".json", ".jinja", ".txt", ".model")
WEIGHT_FOLDERS = ("", "mtp")


class DownloadError(MtplxError):
    """A model could not be fetched."""


class BrokenOff(DownloadError):
    """What may work a moment later: the connection or the server failed."""


@dataclass(frozen=True)
class RemoteFile:
    name: str
    size: int
    key: str  # what the content's hash is: sha256 for large files, git's sha1 for small ones
    large: bool


@dataclass(frozen=True)
class RemoteRepo:
    repo: str
    commit: str
    files: tuple[RemoteFile, ...]

    @property
    def names(self) -> set[str]:
        return {file.name for file in self.files}

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def needed(self, heads: Collection[str]) -> "RemoteRepo":
        """Without what no model needs; ``heads`` are the head's files where it has them named."""
        kept = (file for file in self.files if file.name in heads or is_needed(file.name))
        return replace(self, files=tuple(kept))


def is_offline() -> bool:
    words = (os.environ.get(name, "") for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
    return any(word.upper() in ("1", "ON", "YES", "TRUE") for word in words)


class Hub:
    def __init__(self) -> None:
        if is_offline():
            raise DownloadError(
                "HF_HUB_OFFLINE is set, so nothing is downloaded. Unset it to download the model."
            )
        self.endpoint = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
        self.token = get_token()
        self._headers = build_hf_headers(token=self.token or False, library_name="llm-mtplx")

    def look_up(self, repo: str, revision: str) -> RemoteRepo:
        """All that ``revision`` holds."""
        api = HfApi(endpoint=self.endpoint, token=self.token or False)
        with self._told(repo, revision):
            info = api.model_info(repo, revision=revision, files_metadata=True, timeout=TIMEOUT_S)
        files = [
            RemoteFile(
                file.rfilename,
                file.lfs.size if file.lfs else (file.size or 0),
                file.lfs.sha256 if file.lfs else str(file.blob_id),
                file.lfs is not None,
            )
            for file in info.siblings or []
        ]
        # Hashes become file names.
        if not all(HASH.fullmatch(name) for name in (str(info.sha), *(file.key for file in files))):
            raise DownloadError(f"{self.endpoint} provides no content hashes for {repo}.")
        return RemoteRepo(repo, str(info.sha), tuple(sorted(files, key=_small_first)))

    def read_json(self, repo: RemoteRepo, name: str) -> dict[str, Any] | None:
        """A small file's content without keeping it; None where there is no such file."""
        if name not in repo.names:
            return None
        content = io.BytesIO()
        self.fetch(repo, name, content.write)
        try:
            parsed = json.loads(content.getvalue())
        except ValueError as error:
            raise DownloadError(f"{repo.repo}: {name} is not readable: {error}.") from None
        return parsed if isinstance(parsed, dict) else None

    def fetch(
        self,
        repo: RemoteRepo,
        name: str,
        write: Callable[[bytes], object],
        begin: int = 0,
        restart: Callable[[], object] = lambda: None,
    ) -> None:
        """Write a file's bytes from ``begin`` on; ``restart`` first where they come from 0."""
        url = hf_hub_url(repo.repo, name, revision=repo.commit, endpoint=self.endpoint)
        headers = {**self._headers, "Accept-Encoding": "identity"}
        if begin:
            headers["Range"] = f"bytes={begin}-"
        with (
            self._told(repo.repo, repo.commit),
            get_session().stream("GET", url, headers=headers, timeout=TIMEOUT_S) as response,
        ):
            hf_raise_for_status(response)
            if begin and response.status_code != 206:
                restart()
            for chunk in response.iter_bytes():
                write(chunk)

    @contextlib.contextmanager
    def _told(self, repo: str, revision: str) -> Iterator[None]:
        """The client's errors as one line each."""
        try:
            yield
        except MtplxError:
            raise
        except GatedRepoError:
            page = f"{self.endpoint}/{repo}"
            if self.token:
                line = f"{repo} is gated and your token has no access. Request access at {page}."
            else:
                line = (
                    f"{repo} is gated. Accept its terms at {page}, then set HF_TOKEN or "
                    "run 'hf auth login'."
                )
            raise DownloadError(line) from None
        except RevisionNotFoundError:
            raise DownloadError(f"{repo} has no revision {revision!r}.") from None
        except RepositoryNotFoundError:
            raise DownloadError(
                f"{self.endpoint} has no model {repo}. If it is private, set HF_TOKEN."
            ) from None
        except HfHubHTTPError as error:
            raise self._of_status(repo, error.response.status_code) from error
        except Exception as error:
            # What is left is the HTTP library's own, which differs by the client's version, and
            # errors of the disk, which are the caller's.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise BrokenOff(
                f"{repo} could not be downloaded: {_first_line(error)}. Run the command "
                "again to resume."
            ) from error

    def _of_status(self, repo: str, status: int) -> DownloadError:
        if status == 401:
            return DownloadError(
                f"{self.endpoint} rejected your token (HF_TOKEN or 'hf auth login')."
            )
        if status == 403:
            return DownloadError(
                f"{self.endpoint} denied access to {repo}: your token may not read it."
            )
        kind = BrokenOff if status >= 500 or status in (408, 429) else DownloadError
        return kind(
            f"{self.endpoint} returned status {status} for {repo}. Run the command again "
            "later to resume."
        )


def is_needed(name: str) -> bool:
    """Weights, configs and tokenizer; no code, no other formats, no subfolders but the usual one of
    a head."""
    folder, _, file = name.rpartition("/")
    if folder not in WEIGHT_FOLDERS or file.startswith("."):
        return False
    return file.endswith(".safetensors") or (not folder and file.endswith(SMALL_FILES))


def _small_first(file: RemoteFile) -> tuple[bool, str]:
    return file.large, file.name


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
