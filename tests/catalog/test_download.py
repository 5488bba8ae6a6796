"""``llm mtplx download`` against a hub that fails in every way a hub can."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import snapshot_download

from llm_mtplx.catalog import fetch, known, places
from llm_mtplx.demo import MODEL_DIR

from ..folders import demo_weights, head_of, save, trunk_of
from ..hub import FakeHub, FakeRepo, folder_files, key_of
from ..llm_command import invoke, last_log, ok

REPO = "acme/tiny"
WEIGHTS = "model.safetensors"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    files = folder_files(MODEL_DIR) | {
        "README.md": b"# Tiny",
        "modeling_tiny.py": b"raise SystemExit('never run')",
        "onnx/model.onnx": b"0" * 5000,
        "model.gguf": b"0" * 5000,
    }
    monkeypatch.setattr(fetch, "PAUSE_S", 0)
    with FakeHub({REPO: FakeRepo(files)}).serve() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield hub


def error(*args: str) -> str:
    """The one line a failed command says."""
    result = invoke(*args)
    assert result.exit_code == 1, result.output
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_downloads_and_answers(hub: FakeHub) -> None:
    said = ok("mtplx", "download", REPO, "-a", "tiny")
    assert "with its MTP head" not in said  # without an index nothing tells before
    assert "llm models default tiny" in said
    folder = places.find(REPO)
    assert folder is not None
    wanted = {n for n in hub.repos[REPO].files if "/" not in n and n.split(".")[-1] != "md"}
    wanted -= {"modeling_tiny.py", "model.gguf"}
    assert {path.name for path in folder.iterdir()} == wanted
    for path in folder.iterdir():
        assert path.read_bytes() == hub.repos[REPO].files[path.name]
    assert "Paris" in ok("-m", "tiny", "What is the capital of France?")
    assert "MTPLX: mtplx/acme/tiny (aliases: tiny)" in ok("models")


def test_the_second_time_nothing_is_fetched(hub: FakeHub) -> None:
    ok("mtplx", "download", REPO)
    hub.sent.clear()
    report = json.loads(ok("mtplx", "download", REPO, "--json"))
    assert report["bytes_to_fetch"] == 0
    assert {name for name, _, _ in hub.sent} == {"config.json"}


def test_huggingface_hub_itself_reads_what_we_wrote_and_we_what_it_wrote(hub: FakeHub) -> None:
    ok("mtplx", "download", REPO)
    hub.sent.clear()
    theirs = Path(
        snapshot_download(
            REPO,
            endpoint=hub.endpoint,
            cache_dir=places.hub_cache(),
            allow_patterns=["*.json", "*.safetensors"],
            token=False,
        )
    )
    assert theirs == places.find(REPO)
    assert hub.sent == []
    hub.repos["acme/other"] = hub.repos[REPO]
    snapshot_download(
        "acme/other", endpoint=hub.endpoint, cache_dir=places.hub_cache(), token=False
    )
    assert json.loads(ok("mtplx", "download", "acme/other", "--json"))["bytes_to_fetch"] == 0
    assert "mtplx/acme/other" in ok("mtplx", "models")


def test_a_break_in_mid_file_goes_on_from_there(hub: FakeHub) -> None:
    size = len(hub.repos[REPO].files[WEIGHTS])
    hub.break_after[WEIGHTS] = 100_000
    said = error("mtplx", "download", REPO)
    assert "returned status 503" in said
    assert "to resume" in said
    assert places.find(REPO) is None
    assert "not on this machine" in error("mtplx", "add", REPO)
    hub.fail.clear()
    hub.sent.clear()
    report = json.loads(ok("mtplx", "download", REPO, "--json"))
    assert report["bytes_to_fetch"] == size - 100_000
    assert [part for part in hub.sent if part[0] == WEIGHTS] == [(WEIGHTS, 100_000, size - 100_000)]
    folder = places.find(REPO)
    assert folder is not None
    assert (folder / WEIGHTS).read_bytes() == hub.repos[REPO].files[WEIGHTS]


def test_a_server_without_ranges_sends_all_again(hub: FakeHub) -> None:
    hub.break_after[WEIGHTS] = 100_000
    error("mtplx", "download", REPO)
    hub.fail.clear()
    hub.no_ranges = True
    ok("mtplx", "download", REPO)
    folder = places.find(REPO)
    assert folder is not None
    assert (folder / WEIGHTS).read_bytes() == hub.repos[REPO].files[WEIGHTS]


def test_what_changed_upstream_is_not_glued_to_what_was_here(hub: FakeHub) -> None:
    hub.break_after[WEIGHTS] = 100_000
    error("mtplx", "download", REPO)
    hub.fail.clear()
    hub.sent.clear()
    old = hub.repos[REPO].files[WEIGHTS]
    hub.repos[REPO].files[WEIGHTS] = old[:-1] + bytes([old[-1] ^ 1])
    ok("mtplx", "download", REPO)
    assert (WEIGHTS, 0, len(old)) in hub.sent
    folder = places.find(REPO)
    assert folder is not None
    assert (folder / WEIGHTS).read_bytes() == hub.repos[REPO].files[WEIGHTS]


@pytest.mark.parametrize("name", [WEIGHTS, "tokenizer_config.json"])
def test_a_wrong_hash_is_refused_and_fetched_anew(hub: FakeHub, name: str) -> None:
    hub.corrupt.add(name)
    assert f"{name} is damaged" in error("mtplx", "download", REPO)
    assert places.find(REPO) is None
    hub.corrupt.clear()
    ok("mtplx", "download", REPO)
    folder = places.find(REPO)
    assert folder is not None
    assert (folder / name).read_bytes() == hub.repos[REPO].files[name]


def test_a_damaged_part_is_found_at_its_end(hub: FakeHub) -> None:
    """What is on the disk from last time is hashed too."""
    hub.break_after[WEIGHTS] = 100_000
    error("mtplx", "download", REPO)
    hub.fail.clear()
    key = key_of(hub.repos[REPO].files[WEIGHTS])
    part = places.repo_folder(REPO) / "blobs" / f"{key}.incomplete"
    part.write_bytes(b"\0" * 100_000)
    assert "is damaged" in error("mtplx", "download", REPO)
    ok("mtplx", "download", REPO)


@pytest.mark.parametrize(
    ("token", "says"),
    [
        (None, "is gated. Accept its terms at {endpoint}/acme/tiny, then set HF_TOKEN"),
        ("stranger", "your token has no access. Request access at {endpoint}/acme/tiny"),
        ("nonsense", "rejected your token"),
    ],
)
def test_gated(hub: FakeHub, monkeypatch: pytest.MonkeyPatch, token: str | None, says: str) -> None:
    hub.repos[REPO].gated = True
    hub.tokens.add("friend")
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    assert says.format(endpoint=hub.endpoint) in error("mtplx", "download", REPO)
    assert hub.sent == []
    monkeypatch.setenv("HF_TOKEN", "friend")
    ok("mtplx", "download", REPO)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("acme/nothing",), "has no model acme/nothing. If it is private, set HF_TOKEN"),
        ((REPO, "--revision", "v9"), "acme/tiny has no revision 'v9'"),
        (("nonsense",), "'nonsense' is neither a catalog model"),
        (("mtplx-demo",), "is a folder on this machine"),
        (
            ("Youssofal/Qwen3.8-Flash-Next-MTPLX-Bare-Speed",),
            "cannot be run yet: Flash-Next (qwen4_exp) has layers",
        ),
        (("Youssofal/Gemma4-MTPLX-Optimized-Speed",), "cannot be run yet: Gemma 4 drafts with"),
    ],
)
def test_what_cannot_be_had(hub: FakeHub, args: tuple[str, ...], says: str) -> None:
    assert says in error("mtplx", "download", *args)


@pytest.mark.parametrize("revision", ["../../x", "-x", "a//b", ""])
def test_a_revision_is_a_name(hub: FakeHub, revision: str) -> None:
    assert invoke("mtplx", "download", REPO, f"--revision={revision}").exit_code == 2


def test_a_file_that_is_not_there(hub: FakeHub) -> None:
    hub.fail["tokenizer.json"] = 404
    assert "returned status 404 for acme/tiny" in error("mtplx", "download", REPO)


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "acme/tiny could not be downloaded: " in error("mtplx", "download", REPO)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"config.json": b'{"model_type": "mamba"}'}, "type 'mamba', which is not supported"),
        ({"config.json": b'{"model_type": '}, "config.json is not readable"),
        ({"config.json": b'{"model_type": "qwen3_5"}'}, "no safetensors weights"),
        ({"model.gguf": b"0" * 5000}, "has no config.json"),
    ],
)
def test_what_cannot_be_run_is_refused_before_its_weights(
    hub: FakeHub, files: dict[str, bytes], says: str
) -> None:
    hub.repos[REPO].files = files
    assert says in error("mtplx", "download", REPO)
    assert {name for name, _, _ in hub.sent} <= {"config.json"}


def test_a_disk_that_is_too_small(hub: FakeHub) -> None:
    hub.declared[WEIGHTS] = 10**18
    said = error("mtplx", "download", REPO, "--force")
    assert "Not enough disk space: the download is 1000000000.0 GB" in said
    assert WEIGHTS not in {name for name, _, _ in hub.sent}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_disk_that_fills_up(hub: FakeHub) -> None:
    key = key_of(hub.repos[REPO].files[WEIGHTS])
    part = places.repo_folder(REPO) / "blobs" / f"{key}.incomplete"
    part.parent.mkdir(parents=True)
    part.symlink_to("/dev/full")
    assert "No space left on device. Downloaded data is kept" in error("mtplx", "download", REPO)
    part.unlink()
    hub.sent.clear()
    ok("mtplx", "download", REPO)
    assert {name for name, _, _ in hub.sent} == {"config.json", WEIGHTS}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_that_cannot_be_written(hub: FakeHub) -> None:
    places.hub_cache().mkdir(parents=True)
    places.hub_cache().chmod(0o500)
    assert "could not be written" in error("mtplx", "download", REPO)


def test_a_model_that_does_not_fit_into_memory(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llm_mtplx.catalog.machine.memory_bytes", lambda: 2**20)
    assert "this machine's memory. Use --force" in error("mtplx", "download", REPO)
    assert "does not fit: needs about" in ok("mtplx", "download", REPO, "--dry-run")
    ok("mtplx", "download", REPO, "--force")


def test_a_dry_run_keeps_nothing(hub: FakeHub) -> None:
    report = json.loads(ok("mtplx", "download", REPO, "--dry-run", "--json"))
    assert report["bytes"] == report["bytes_to_fetch"]
    assert report["verdict"] == "recommended"
    assert not places.hub_cache().exists()
    assert "mtplx/acme/tiny" not in ok("mtplx", "models")


def test_an_index_tells_about_the_head(hub: FakeHub) -> None:
    files = hub.repos[REPO].files
    names = {name: WEIGHTS for name in trunk_of(demo_weights())}
    files["model.safetensors.index.json"] = json.dumps({"weight_map": names}).encode()
    assert "no MTP head: decodes without drafts" in ok("mtplx", "download", REPO, "--dry-run")
    names["mtp.fc.weight"] = WEIGHTS
    files["model.safetensors.index.json"] = json.dumps({"weight_map": names}).encode()
    assert ", with its MTP head" in ok("mtplx", "download", REPO, "--dry-run")
    files["config.json"] = b'{"model_type": "prism_hadamard_qwen35"}'
    assert "no MTP head" in ok("mtplx", "download", REPO, "--dry-run"), "it must lie beside them"


def test_a_sidecar_is_fetched_from_its_folder(hub: FakeHub, tmp_path: Path) -> None:
    with_sidecar(hub, tmp_path, "mtp/weights.safetensors")
    assert ", with its MTP head" in ok("mtplx", "download", REPO)
    listed = {model["id"]: model for model in json.loads(ok("mtplx", "models", "--json"))}
    assert listed["mtplx/acme/tiny"]["head"] is True


def with_sidecar(hub: FakeHub, tmp_path: Path, name: str) -> dict[str, bytes]:
    """The repository with its head in a file of its own; returns its files."""
    weights = demo_weights()
    save(tmp_path / "head.safetensors", head_of(weights))
    save(tmp_path / "trunk.safetensors", trunk_of(weights))
    files = hub.repos[REPO].files
    files[name] = (tmp_path / "head.safetensors").read_bytes()
    files[WEIGHTS] = (tmp_path / "trunk.safetensors").read_bytes()
    return files


def runtime(**told: object) -> bytes:
    return json.dumps(told).encode()


def test_a_head_is_fetched_from_where_the_pack_says_it_lies(hub: FakeHub, tmp_path: Path) -> None:
    files = with_sidecar(hub, tmp_path, "heads/x.safetensors")
    files["heads/y.safetensors"] = files["heads/x.safetensors"]
    files["mtplx_runtime.json"] = runtime(mtp_sidecar_file="./heads/x.safetensors")
    config = json.loads(files["config.json"]) | {"mtp_norm_encoding": "delta"}
    files["config.json"] = json.dumps(config).encode()
    assert ", with its MTP head" in ok("mtplx", "download", REPO, "-a", "tiny")
    assert "heads/y.safetensors" not in {name for name, _, _ in hub.sent}
    assert "Paris" in ok("-m", "tiny", "What is the capital of France?", "-o", "draft", "2")
    assert sum(last_log()["response_json"]["mtp"]["accepted"]) > 0


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"mtp_file": "heads/x.safetensors"}, "heads/x.safetensors but does not contain it"),
        ({"mtp_file": "../x.safetensors"}, "an MTP head file outside the folder"),
        ({"mtp_file": "head.py"}, "head.py is not a safetensors file"),
        ({"min_engine_version": "2.13.0"}, "acme/tiny requires MTPLX 2.13.0"),
    ],
)
def test_a_pack_whose_record_cannot_be_kept_to_is_refused_before_its_weights(
    hub: FakeHub, told: dict[str, str], says: str
) -> None:
    hub.repos[REPO].files["mtplx_runtime.json"] = runtime(**told)
    assert says in error("mtplx", "download", REPO)
    assert WEIGHTS not in {name for name, _, _ in hub.sent}


def test_a_revision_of_its_own(hub: FakeHub) -> None:
    ok("mtplx", "download", REPO)
    first = places.find(REPO)
    hub.repos[REPO].files["README.json"] = b"{}"
    hub.repos[REPO].branch = "v2"
    ok("mtplx", "download", REPO, "--revision", "v2")
    second = places.find(REPO, "v2")
    assert second is not None and second != first
    assert places.find(REPO) == first
    assert "mtplx/acme/tiny" in ok("mtplx", "models")
    listed = {model["id"]: model for model in json.loads(ok("mtplx", "models", "--json"))}
    assert listed["mtplx/acme/tiny"]["path"] == str(second)
    hub.sent.clear()
    commit = hub.repos[REPO].commit
    ok("mtplx", "download", REPO, "--revision", commit)
    assert places.find(REPO, commit) == second


def test_offline(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE is set" in error("mtplx", "download", REPO)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    ok("mtplx", "download", REPO)
    hub.sent.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "already on this machine" in ok("mtplx", "download", REPO)
    assert hub.sent == []


def test_a_catalog_model_by_its_name(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llm_mtplx.catalog.machine.memory_bytes", lambda: 16 * 2**30)
    pack = known.pack("qwen3.5-4b-mtp")
    assert pack is not None
    hub.repos[pack.bfloat16.repo] = hub.repos[REPO]
    refused = invoke("-m", "qwen3.5-4b-mtp", "Hello")
    assert refused.exit_code == 1
    assert refused.stderr.strip() == (
        "Error: qwen3.5-4b-mtp is not on this machine. "
        "Get it (2.6 GB) with: llm mtplx download qwen3.5-4b-mtp"
    )
    assert hub.sent == []
    elsewhere = "(not here: llm mtplx download qwen3.5-4b-mtp)"
    assert f"qwen3.5-4b-mtp {elsewhere}" in ok("models")
    ok("mtplx", "download", "qwen3.5-4b-mtp")
    assert "Paris" in ok("-m", "qwen3.5-4b-mtp", "What is the capital of France?")
    assert elsewhere not in ok("models")


def test_a_taken_alias_is_told_before_the_download(hub: FakeHub) -> None:
    assert "'mtplx-demo' is already used by mtplx-demo" in error(
        "mtplx", "download", REPO, "-a", "mtplx-demo"
    )
    assert hub.sent == []


def test_one_download_at_a_time(hub: FakeHub) -> None:
    with fetch._only_one(places.repo_folder(REPO)):
        assert "Another process is downloading this model" in error("mtplx", "download", REPO)
    ok("mtplx", "download", REPO)


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_a_terminal_shows_how_far_it_is(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from llm_mtplx.commands.download import Bar

    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with Bar(1_000_000, 200_000) as bar:
        bar.begin("model.safetensors")
        bar.advance(300_000)
        bar._bar.refresh()
    shown = capfd.readouterr().err
    assert "model.safetensors" in shown
    assert "500k/1.00M" in shown
