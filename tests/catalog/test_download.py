"""``llm mtplx download`` against a hub that fails in every way a hub can."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click.testing
import pytest
from huggingface_hub import snapshot_download
from llm.cli import cli

from llm_mtplx.catalog import fetch, known, places
from llm_mtplx.demo import MODEL_DIR

from ..folders import demo_weights, save, trunk_of
from ..hub import FakeHub, FakeRepo, folder_files, key_of

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


def invoke(*args: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli, ["mtplx", *args])


def ok(*args: str) -> str:
    result = invoke(*args)
    assert result.exit_code == 0, result.output
    return result.stdout


def error(*args: str) -> str:
    """The one line a failed command says."""
    result = invoke(*args)
    assert result.exit_code == 1, result.output
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_downloads_and_answers(hub: FakeHub) -> None:
    said = ok("download", REPO, "-a", "tiny")
    assert "with its MTP head" not in said  # without an index nothing tells before
    assert "llm models default tiny" in said
    folder = places.find(REPO)
    assert folder is not None
    wanted = {n for n in hub.repos[REPO].files if "/" not in n and n.split(".")[-1] != "md"}
    wanted -= {"modeling_tiny.py", "model.gguf"}
    assert {path.name for path in folder.iterdir()} == wanted
    for path in folder.iterdir():
        assert path.read_bytes() == hub.repos[REPO].files[path.name]
    result = click.testing.CliRunner().invoke(cli, ["-m", "tiny", "What is the capital of France?"])
    assert "Paris" in result.stdout
    assert (
        "MTPLX: mtplx/acme/tiny (aliases: tiny)"
        in click.testing.CliRunner().invoke(cli, ["models"]).stdout
    )


def test_the_second_time_nothing_is_fetched(hub: FakeHub) -> None:
    ok("download", REPO)
    hub.sent.clear()
    report = json.loads(ok("download", REPO, "--json"))
    assert report["bytes_to_fetch"] == 0
    assert {name for name, _, _ in hub.sent} == {"config.json"}


def test_huggingface_hub_itself_reads_what_we_wrote_and_we_what_it_wrote(hub: FakeHub) -> None:
    ok("download", REPO)
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
    assert json.loads(ok("download", "acme/other", "--json"))["bytes_to_fetch"] == 0
    assert "mtplx/acme/other" in ok("models")


def test_a_break_in_mid_file_goes_on_from_there(hub: FakeHub) -> None:
    size = len(hub.repos[REPO].files[WEIGHTS])
    hub.break_after[WEIGHTS] = 100_000
    said = error("download", REPO)
    assert "answered 503" in said
    assert "to go on from here" in said
    assert places.find(REPO) is None
    assert "not on this machine" in error("add", REPO)
    hub.fail.clear()
    hub.sent.clear()
    report = json.loads(ok("download", REPO, "--json"))
    assert report["bytes_to_fetch"] == size - 100_000
    assert [part for part in hub.sent if part[0] == WEIGHTS] == [(WEIGHTS, 100_000, size - 100_000)]
    folder = places.find(REPO)
    assert folder is not None
    assert (folder / WEIGHTS).read_bytes() == hub.repos[REPO].files[WEIGHTS]


def test_a_server_without_ranges_sends_all_again(hub: FakeHub) -> None:
    hub.break_after[WEIGHTS] = 100_000
    error("download", REPO)
    hub.fail.clear()
    hub.no_ranges = True
    ok("download", REPO)
    folder = places.find(REPO)
    assert folder is not None
    assert (folder / WEIGHTS).read_bytes() == hub.repos[REPO].files[WEIGHTS]


def test_what_changed_upstream_is_not_glued_to_what_was_here(hub: FakeHub) -> None:
    hub.break_after[WEIGHTS] = 100_000
    error("download", REPO)
    hub.fail.clear()
    hub.sent.clear()
    old = hub.repos[REPO].files[WEIGHTS]
    hub.repos[REPO].files[WEIGHTS] = old[:-1] + bytes([old[-1] ^ 1])
    ok("download", REPO)
    assert (WEIGHTS, 0, len(old)) in hub.sent
    folder = places.find(REPO)
    assert folder is not None
    assert (folder / WEIGHTS).read_bytes() == hub.repos[REPO].files[WEIGHTS]


@pytest.mark.parametrize("name", [WEIGHTS, "tokenizer_config.json"])
def test_a_wrong_hash_is_refused_and_fetched_anew(hub: FakeHub, name: str) -> None:
    hub.corrupt.add(name)
    assert f"{name} arrived damaged" in error("download", REPO)
    assert places.find(REPO) is None
    hub.corrupt.clear()
    ok("download", REPO)
    folder = places.find(REPO)
    assert folder is not None
    assert (folder / name).read_bytes() == hub.repos[REPO].files[name]


def test_a_damaged_part_is_found_at_its_end(hub: FakeHub) -> None:
    """What is on the disk from last time is hashed too."""
    hub.break_after[WEIGHTS] = 100_000
    error("download", REPO)
    hub.fail.clear()
    key = key_of(hub.repos[REPO].files[WEIGHTS])
    part = places.repo_folder(REPO) / "blobs" / f"{key}.incomplete"
    part.write_bytes(b"\0" * 100_000)
    assert "arrived damaged" in error("download", REPO)
    ok("download", REPO)


@pytest.mark.parametrize(
    ("token", "says"),
    [
        (None, "is gated: accept its terms at {endpoint}/acme/tiny, then set HF_TOKEN"),
        ("stranger", "your token has no access: ask for it at {endpoint}/acme/tiny"),
        ("nonsense", "does not accept your token"),
    ],
)
def test_gated(hub: FakeHub, monkeypatch: pytest.MonkeyPatch, token: str | None, says: str) -> None:
    hub.repos[REPO].gated = True
    hub.tokens.add("friend")
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    assert says.format(endpoint=hub.endpoint) in error("download", REPO)
    assert hub.sent == []
    monkeypatch.setenv("HF_TOKEN", "friend")
    ok("download", REPO)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("acme/nothing",), "has no model acme/nothing, or it is private: then set HF_TOKEN"),
        ((REPO, "--revision", "v9"), "acme/tiny has no revision 'v9'"),
        (("nonsense",), "'nonsense' is no model of the catalog"),
        (("mtplx-demo",), "is a folder on this machine"),
        (
            ("Youssofal/Qwen3.8-Flash-Next-MTPLX-Bare-Speed",),
            "cannot be run yet: Flash-Next (qwen4_exp) has layers",
        ),
        (("Youssofal/Gemma4-MTPLX-Optimized-Speed",), "cannot be run yet: Gemma 4 drafts with"),
    ],
)
def test_what_cannot_be_had(hub: FakeHub, args: tuple[str, ...], says: str) -> None:
    assert says in error("download", *args)


@pytest.mark.parametrize("revision", ["../../x", "-x", "a//b", ""])
def test_a_revision_is_a_name(hub: FakeHub, revision: str) -> None:
    assert invoke("download", REPO, f"--revision={revision}").exit_code == 2


def test_a_file_that_is_not_there(hub: FakeHub) -> None:
    hub.fail["tokenizer.json"] = 404
    assert "answered 404 for acme/tiny" in error("download", REPO)


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "acme/tiny could not be fetched: " in error("download", REPO)


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
    assert says in error("download", REPO)
    assert {name for name, _, _ in hub.sent} <= {"config.json"}


def test_a_disk_that_is_too_small(hub: FakeHub) -> None:
    hub.declared[WEIGHTS] = 10**18
    said = error("download", REPO, "--force")
    assert "Not enough disk: 1000000000.0 GB are to be fetched" in said
    assert WEIGHTS not in {name for name, _, _ in hub.sent}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_disk_that_fills_up(hub: FakeHub) -> None:
    key = key_of(hub.repos[REPO].files[WEIGHTS])
    part = places.repo_folder(REPO) / "blobs" / f"{key}.incomplete"
    part.parent.mkdir(parents=True)
    part.symlink_to("/dev/full")
    assert "No space left on device. What has arrived is kept" in error("download", REPO)
    part.unlink()
    hub.sent.clear()
    ok("download", REPO)
    assert {name for name, _, _ in hub.sent} == {"config.json", WEIGHTS}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_that_cannot_be_written(hub: FakeHub) -> None:
    places.hub_cache().mkdir(parents=True)
    places.hub_cache().chmod(0o500)
    assert "could not be written" in error("download", REPO)


def test_a_model_that_does_not_fit_into_memory(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llm_mtplx.catalog.machine.memory_bytes", lambda: 2**20)
    assert "does not fit into this machine's memory; --force" in error("download", REPO)
    assert "does not fit: needs about" in ok("download", REPO, "--dry-run")
    ok("download", REPO, "--force")


def test_a_dry_run_keeps_nothing(hub: FakeHub) -> None:
    report = json.loads(ok("download", REPO, "--dry-run", "--json"))
    assert report["bytes"] == report["bytes_to_fetch"]
    assert report["verdict"] == "recommended"
    assert not places.hub_cache().exists()
    assert "mtplx/acme/tiny" not in ok("models")


def test_an_index_tells_about_the_head(hub: FakeHub) -> None:
    files = hub.repos[REPO].files
    names = {name: WEIGHTS for name in trunk_of(demo_weights())}
    files["model.safetensors.index.json"] = json.dumps({"weight_map": names}).encode()
    assert "no MTP head: decodes without drafts" in ok("download", REPO, "--dry-run")
    names["mtp.fc.weight"] = WEIGHTS
    files["model.safetensors.index.json"] = json.dumps({"weight_map": names}).encode()
    assert ", with its MTP head" in ok("download", REPO, "--dry-run")


def test_a_sidecar_is_fetched_from_its_folder(hub: FakeHub, tmp_path: Path) -> None:
    weights = demo_weights()
    save(tmp_path / "head.safetensors", {n: v for n, v in weights.items() if n.startswith("mtp.")})
    save(tmp_path / "trunk.safetensors", trunk_of(weights))
    hub.repos[REPO].files["mtp/weights.safetensors"] = (tmp_path / "head.safetensors").read_bytes()
    hub.repos[REPO].files[WEIGHTS] = (tmp_path / "trunk.safetensors").read_bytes()
    assert ", with its MTP head" in ok("download", REPO)
    listed = {model["id"]: model for model in json.loads(ok("models", "--json"))}
    assert listed["mtplx/acme/tiny"]["head"] is True


def test_a_revision_of_its_own(hub: FakeHub) -> None:
    ok("download", REPO)
    first = places.find(REPO)
    hub.repos[REPO].files["README.json"] = b"{}"
    hub.repos[REPO].branch = "v2"
    ok("download", REPO, "--revision", "v2")
    second = places.find(REPO, "v2")
    assert second is not None and second != first
    assert places.find(REPO) == first
    assert "mtplx/acme/tiny" in ok("models")
    listed = {model["id"]: model for model in json.loads(ok("models", "--json"))}
    assert listed["mtplx/acme/tiny"]["path"] == str(second)
    hub.sent.clear()
    commit = hub.repos[REPO].commit
    ok("download", REPO, "--revision", commit)
    assert places.find(REPO, commit) == second


def test_offline(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE is set" in error("download", REPO)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    ok("download", REPO)
    hub.sent.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "on this machine already" in ok("download", REPO)
    assert hub.sent == []


def test_a_catalog_model_by_its_name(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llm_mtplx.catalog.machine.memory_bytes", lambda: 16 * 2**30)
    pack = known.pack("qwen3.5-4b-mtp")
    assert pack is not None
    hub.repos[pack.bfloat16.repo] = hub.repos[REPO]
    runner = click.testing.CliRunner()
    refused = runner.invoke(cli, ["-m", "qwen3.5-4b-mtp", "Hello"])
    assert refused.exit_code == 1
    assert refused.stderr.strip() == (
        "Error: qwen3.5-4b-mtp is not on this machine. "
        "Get it (2.6 GB) with: llm mtplx download qwen3.5-4b-mtp"
    )
    assert hub.sent == []
    assert (
        "qwen3.5-4b-mtp (not here: llm mtplx download qwen3.5-4b-mtp)"
        in runner.invoke(cli, ["models"]).stdout
    )
    ok("download", "qwen3.5-4b-mtp")
    answer = runner.invoke(cli, ["-m", "qwen3.5-4b-mtp", "What is the capital of France?"])
    assert "Paris" in answer.stdout, answer.stderr
    assert (
        "(not here: llm mtplx download qwen3.5-4b-mtp)" not in runner.invoke(cli, ["models"]).stdout
    )


def test_a_taken_alias_is_told_before_the_download(hub: FakeHub) -> None:
    assert "'mtplx-demo' already names mtplx-demo" in error("download", REPO, "-a", "mtplx-demo")
    assert hub.sent == []


def test_one_download_at_a_time(hub: FakeHub) -> None:
    with fetch._only_one(places.repo_folder(REPO)):
        assert "Another process is downloading this model" in error("download", REPO)
    ok("download", REPO)


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
