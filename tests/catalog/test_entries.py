"""What has a name, where it is found, and what a user is told where it is not."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from llm_mtplx.catalog import known, machine, places
from llm_mtplx.catalog.entries import Entry, find_entry, list_entries
from llm_mtplx.errors import ModelFolderError

from ..folders import copy_demo, edit_json
from ..llm_command import invoke, ok

REPO = "acme/tiny"


def in_cache(root: Path) -> Callable[[str], Path]:
    """Where Hugging Face's client would put a repository below ``root``."""

    def place(repo: str) -> Path:
        folder = root / ("models--" + repo.replace("/", "--"))
        (folder / "refs").mkdir(parents=True, exist_ok=True)
        (folder / "refs" / "main").write_text("c0ffee")
        return copy_demo(folder / "snapshots" / "c0ffee")

    return place


@pytest.mark.parametrize(
    ("environment", "where"),
    [
        ({}, "home/.cache/huggingface/hub"),
        ({"HF_HOME": "{tmp}/hf"}, "hf/hub"),
        ({"HF_HUB_CACHE": "{tmp}/cache", "HF_HOME": "{tmp}/hf"}, "cache"),
        ({"HF_HUB_CACHE": "$PLACE/cache", "PLACE": "{tmp}"}, "cache"),
        ({"XDG_CACHE_HOME": "{tmp}/xdg"}, "xdg/huggingface/hub"),
    ],
)
def test_hugging_face_s_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], where: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(tmp=tmp_path))
    assert places.find(REPO) is None
    path = in_cache(tmp_path / where)(REPO)
    assert places.find(REPO) == path
    assert list(places.discover()) == [(REPO, path)]


@pytest.mark.parametrize(
    "where",
    [
        ".lmstudio/models/acme/tiny",
        ".cache/lm-studio/models/acme/tiny",
        ".mtplx/models/acme--tiny",
        "elsewhere/models/acme/tiny",
    ],
)
def test_other_programs_folders(tmp_path: Path, where: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    if where.startswith("elsewhere"):
        (home / ".lmstudio-home-pointer").write_text(f"{home / 'elsewhere'}\n")
    path = copy_demo(home / where)
    assert places.find(REPO) == path
    listed = {m["id"]: m for m in json.loads(ok("mtplx", "models", "--json"))}
    assert listed[REPO]["state"] == "found"
    assert listed[REPO]["command"] == "llm mtplx add acme/tiny"
    ok("mtplx", "add", REPO, "-a", "tiny")
    listed = {m["id"]: m for m in json.loads(ok("mtplx", "models", "--json"))}
    assert REPO not in listed
    assert listed["mtplx/acme/tiny"]["path"] == str(path)
    assert "Paris" in ok("-m", "tiny", "What is the capital of France?")
    assert "already" in ok("mtplx", "download", REPO)


def test_a_folder_of_mtplx_without_an_owner(tmp_path: Path) -> None:
    path = copy_demo(tmp_path / "home" / ".mtplx" / "models" / "mine")
    assert list(places.discover()) == [("mtplx/mine", path)]
    ok("mtplx", "add", "mtplx/mine")


def test_an_unsupported_model_is_not_offered(tmp_path: Path) -> None:
    path = copy_demo(tmp_path / "home" / ".lmstudio" / "models" / "acme" / "tiny")
    edit_json(path / "config.json", lambda config: config.update(model_type="mamba"))
    assert REPO not in ok("mtplx", "models")
    result = invoke("mtplx", "add", REPO)
    assert result.exit_code == 1
    assert "type 'mamba', which is not supported" in result.stderr


def test_code_that_comes_with_a_model_is_not_run(tmp_path: Path) -> None:
    path = copy_demo(tmp_path / "tiny")
    (path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    auto_map = {"AutoModelForCausalLM": "evil.Model", "AutoTokenizer": ["evil.Tok", None]}
    for name in ("config.json", "tokenizer_config.json"):
        edit_json(path / name, lambda config: config.update(auto_map=auto_map))
    ok("mtplx", "add", str(path), "-a", "tiny")
    assert "Paris" in ok("-m", "tiny", "What is the capital of France?")
    assert not (tmp_path / "ran").exists()


def test_half_a_download_is_not_taken_for_a_model(tmp_path: Path) -> None:
    path = in_cache(places.hub_cache())("Youssofal/Qwen3.5-4B-MTPLX-Optimized-Speed")
    names = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(names))
    result = invoke("-m", "qwen3.5-4b-mtp", "Hello")
    assert result.exit_code == 1
    assert "only partly downloaded. Get it (2.6 GB) with: llm mtplx download" in result.stderr
    whole = copy_demo(tmp_path / "home/.lmstudio/models/Youssofal/Qwen3.5-4B-MTPLX-Optimized-Speed")
    entry = find_entry("qwen3.5-4b-mtp")
    assert entry is not None and entry.path == whole


def test_a_folder_moved_deleted_or_behind_a_link(tmp_path: Path) -> None:
    real = copy_demo(tmp_path / "disk" / "tiny")
    link = tmp_path / "acme" / "tiny"
    link.parent.mkdir()
    link.symlink_to(real)
    ok("mtplx", "add", str(link), "-a", "tiny")
    moved = real.rename(tmp_path / "disk" / "other")
    result = invoke("-m", "tiny", "Hello")
    assert result.exit_code == 1
    assert f"{link} does not exist" in result.stderr
    assert "MTPLX: mtplx/acme/tiny (its folder is gone)" in ok("models")
    assert "does not exist" in ok("mtplx", "models")
    link.unlink()
    link.symlink_to(moved)
    assert "Paris" in ok("-m", "tiny", "What is the capital of France?")
    ok("mtplx", "remove", "tiny")
    assert (moved / "config.json").exists()


def test_a_repository_that_was_deleted_after_it_was_added(tmp_path: Path) -> None:
    path = in_cache(places.hub_cache())(REPO)
    ok("mtplx", "add", REPO)
    path.rename(tmp_path / "away")
    result = invoke("-m", "mtplx/acme/tiny", "Hello")
    assert "not on this machine. Get it with: llm mtplx download acme/tiny" in result.stderr
    assert "acme/tiny: not on this machine: llm mtplx download acme/tiny" in ok("mtplx", "models")


def test_an_alias_belongs_to_one_model(tmp_path: Path) -> None:
    first, second = copy_demo(tmp_path / "a" / "tiny"), copy_demo(tmp_path / "b" / "tiny")
    ok("mtplx", "add", str(first), "-a", "tiny")
    ok("mtplx", "add", str(first), "-a", "tiny", "-a", "small")
    result = invoke("mtplx", "add", str(second), "-a", "tiny")
    assert result.exit_code == 1
    assert "'tiny' is already used by mtplx/a/tiny" in result.stderr
    assert "mtplx-demo" in invoke("mtplx", "add", str(second), "-a", "mtplx-demo").stderr


def test_a_catalog_model_stays_in_the_catalog() -> None:
    result = invoke("mtplx", "remove", "qwen3.5-9b-mtp")
    assert result.exit_code == 1
    assert "is in the catalog and cannot be removed" in result.stderr


def test_the_list() -> None:
    listed = ok("mtplx", "models")
    assert "mtplx-demo: with its MTP head" in listed
    assert "qwen3.8-27b-mtp: 20.7 GB, " in listed
    assert ": llm mtplx download qwen3.8-27b-mtp" in listed
    assert "Qwen3.8-Flash-Next-MTPLX-Bare-Speed: Flash-Next (qwen4_exp) has layers" in listed
    assert "Gemma4-MTPLX-Optimized-Speed: Gemma 4 drafts with a second model" in listed


def test_the_recommended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_bytes", lambda: 16 * 2**30)
    monkeypatch.setattr(machine, "chip", lambda: "Apple M4")
    listed = json.loads(ok("mtplx", "models", "--recommended", "--json"))
    assert [(model["id"], model["verdict"]) for model in listed[:2]] == [
        ("bonsai-2-27b-mtp", "tight"),
        ("mimo-v2.6-qwen-9b-mtp", "recommended"),
    ]
    monkeypatch.setattr(machine, "memory_bytes", lambda: 2**30)
    assert "No model in the catalog suits this machine" in ok("mtplx", "models", "--recommended")


@pytest.mark.parametrize(
    ("chip", "float16"),
    [
        ("Apple M1", True),
        ("Apple M2 Ultra", True),
        ("Apple M3", False),
        ("Apple M10", False),
        ("", False),
    ],
)
def test_m1_and_m2_take_the_float16_pack(
    monkeypatch: pytest.MonkeyPatch, chip: str, float16: bool
) -> None:
    monkeypatch.setattr(machine, "chip", lambda: chip)
    entry = find_entry("qwen3.8-27b-mtp")
    assert entry is not None
    assert entry.repos()[0].endswith("-FP16") is float16
    # What is here is used, though the other would be faster.
    path = in_cache(places.hub_cache())("Youssofal/Qwen3.8-27B-MTPLX-Optimized-Speed")
    assert entry.path == path
    other = in_cache(places.hub_cache())("Youssofal/Qwen3.8-27B-MTPLX-Optimized-Speed-FP16")
    assert entry.path == (other if float16 else path)


def test_the_catalog() -> None:
    ids = [pack.model_id for pack in known.PACKS]
    assert len(set(ids)) == len(ids)
    assert [entry.model_id for entry in list_entries()[0]] == ["mtplx-demo", *ids]
    assert all(id_.endswith(("-mtp", "-mtp-quality", "-mtp-bare")) for id_ in ids)
    repos = {d.repo for pack in known.PACKS for d in (pack.bfloat16, pack.float16) if d}
    assert len(repos) == 21
    assert not repos & known.NOT_RUNNABLE.keys()
    for repo in repos:
        assert known.of_repo(repo.upper()) is not None
    sizes = {d.repo: d.size for pack in known.PACKS for d in (pack.bfloat16, pack.float16) if d}
    assert sum(sizes.values()) == 389_281_580_126


def test_an_entry_without_a_place() -> None:
    with pytest.raises(ModelFolderError, match="not on this machine"):
        _ = Entry("mtplx/acme/tiny", repo=REPO).path


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_cache_that_cannot_be_read(tmp_path: Path) -> None:
    cache = places.hub_cache()
    cache.mkdir(parents=True)
    cache.chmod(0)
    try:
        assert "mtplx-demo" in ok("models")
        assert "mtplx-demo" in ok("mtplx", "models")
    finally:
        cache.chmod(0o700)
