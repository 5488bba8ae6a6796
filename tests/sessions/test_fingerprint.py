"""Equal fingerprints mean equal weights, config, tokenizer and arithmetic."""

import os
from pathlib import Path
from typing import Any

import pytest

from llm_mtplx.catalog.folder import inspect
from llm_mtplx.sessions import fingerprint as module
from llm_mtplx.sessions.fingerprint import Fingerprint

from ..folders import copy_demo, edit_json

VERSIONS: dict[str, Any] = {"mlx": "1", "blas": "own"}


def of(folder: Path, memo: Path, told: dict[str, Any] = VERSIONS) -> str | None:
    return Fingerprint(inspect(folder), memo, told).value


def flip_a_weight(folder: Path) -> None:
    """One byte, size and time as before."""
    file = folder / "model.safetensors"
    told = file.stat()
    raw = bytearray(file.read_bytes())
    raw[-5] ^= 1
    file.write_bytes(raw)
    os.utime(file, ns=(told.st_atime_ns, told.st_mtime_ns))


def change_the_config(folder: Path) -> None:
    edit_json(folder / "config.json", lambda c: c["text_config"].update(rms_norm_eps=1e-5))


def change_the_tokenizer(folder: Path) -> None:
    file = folder / "tokenizer.json"
    file.write_text(file.read_text() + "\n")


@pytest.mark.parametrize("change", [flip_a_weight, change_the_config, change_the_tokenizer])
def test_a_change_in_the_folder_is_another_fingerprint(tmp_path: Path, change) -> None:
    folder, memo = copy_demo(tmp_path / "model"), tmp_path / "memo.json"
    before = of(folder, memo)
    assert before is not None and before == of(folder, memo)
    change(folder)
    assert of(folder, memo) not in (before, None)


def test_what_it_is_computed_with_counts(tmp_path: Path) -> None:
    folder, memo = copy_demo(tmp_path / "model"), tmp_path / "memo.json"
    assert of(folder, memo) != of(folder, memo, {**VERSIONS, "blas": "other"})


def test_a_copy_elsewhere_is_the_same_model(tmp_path: Path) -> None:
    one, other = copy_demo(tmp_path / "one"), copy_demo(tmp_path / "other")
    memo = tmp_path / "memo.json"
    assert of(one, memo) == of(other, memo)


def test_hashes_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, memo = copy_demo(tmp_path / "model"), tmp_path / "memo.json"
    before = of(folder, memo)
    hashed: list[str] = []
    real = module._hash_file
    monkeypatch.setattr(module, "_hash_file", lambda file: hashed.append(file.name) or real(file))
    assert of(folder, memo) == before
    assert "model.safetensors" not in hashed


@pytest.mark.parametrize("content", ["{", "[]", '{"x": 3}'])
def test_an_unreadable_memo_is_made_anew(tmp_path: Path, content: str) -> None:
    folder, memo = copy_demo(tmp_path / "model"), tmp_path / "memo.json"
    before = of(folder, memo)
    memo.write_text(content)
    assert of(folder, memo) == before


def test_a_hub_cache_names_its_blobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link to blobs/<sha256> needs no hashing; another blob is another model."""
    folder, blobs = copy_demo(tmp_path / "snapshot"), tmp_path / "blobs"
    blobs.mkdir()
    weights = folder / "model.safetensors"
    raw = weights.read_bytes()
    values = []
    hashed: list[str] = []
    real = module._hash_file
    monkeypatch.setattr(module, "_hash_file", lambda file: hashed.append(file.name) or real(file))
    for name in ("a" * 64, "b" * 64):
        (blobs / name).write_bytes(raw)
        weights.unlink()
        weights.symlink_to(blobs / name)
        values.append(of(folder, tmp_path / "memo.json"))
    assert values[0] != values[1]
    assert "model.safetensors" not in hashed


def test_large_weights_are_hashed_in_the_background(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "INLINE_BYTES", 0)
    folder, memo = copy_demo(tmp_path / "model"), tmp_path / "memo.json"
    started: list[Any] = []
    monkeypatch.setattr(module.threading, "Thread", lambda **told: started.append(told) or Later())
    pending = Fingerprint(inspect(folder), memo, VERSIONS)
    assert pending.value is None
    started[0]["target"]()
    assert pending.value is not None


class Later:
    def start(self) -> None:
        pass


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), ValueError("x"), MemoryError()], ids=repr
)
def test_weights_that_cannot_be_read_are_an_error_and_not_pending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str, error: Exception
) -> None:
    def fail(file: Path) -> str:
        raise error

    monkeypatch.setattr(module, "INLINE_BYTES", 0 if size == "large" else 1 << 40)
    monkeypatch.setattr(module, "_hash_file", fail)
    found = Fingerprint(inspect(copy_demo(tmp_path / "model")), tmp_path / "memo.json", VERSIONS)
    found.wait(60)
    assert (found.value, found.error) == (None, error)


def test_a_process_that_can_start_no_thread_answers_without_a_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    folder = inspect(copy_demo(tmp_path / "model"))
    monkeypatch.setattr(module, "INLINE_BYTES", 0)
    monkeypatch.setattr(module.threading.Thread, "start", refuse)
    found = Fingerprint(folder, tmp_path / "memo.json", VERSIONS)
    found.wait(60)
    assert found.value is None
    assert "interpreter shutdown" in str(found.error)
