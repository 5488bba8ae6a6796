"""A measured depth is saved for one model, machine and version, and used from then on."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from llm.cli import cli

from llm_mtplx.catalog.folder import inspect
from llm_mtplx.engine import tuning
from llm_mtplx.engine.tuning import Measured, record_key, recorded_depth, save

from ..folders import copy_demo, demo_weights, save_random_model, trunk_of
from ..folders import save as save_weights


def test_records_are_found_again(tmp_path: Path) -> None:
    folder = inspect(copy_demo(tmp_path / "model"))
    assert recorded_depth(folder) is None
    save(folder, Measured(2, {0: 1.0, 1: 1.5, 2: 1.7}))
    assert recorded_depth(folder) == 2
    save(folder, Measured(0, {0: 1.0, 1: 0.5, 2: 0.7}))
    assert recorded_depth(folder) == 0


@pytest.mark.parametrize("changed", ["backend", "blas", "versions", "device"])
def test_another_machine_or_version_has_another_key(tmp_path, monkeypatch, changed: str) -> None:
    folder = inspect(copy_demo(tmp_path / "model"))
    save(folder, Measured(2, {0: 1.0, 2: 1.7}))
    told = tuning.facts()
    monkeypatch.setattr(tuning, "facts", lambda: {**told, changed: "other"})
    assert recorded_depth(folder) is None


def test_other_weights_have_another_key(tmp_path: Path) -> None:
    path = copy_demo(tmp_path / "model")
    key = record_key(inspect(path))
    (path / "mtp.safetensors").write_bytes((path / "model.safetensors").read_bytes())
    assert record_key(inspect(path)) != key


@pytest.mark.parametrize("content", ["", "[]", '{"x": 3}', "{"])
def test_an_unreadable_file_is_no_record(tmp_path, user_path: Path, content: str) -> None:
    folder = inspect(copy_demo(tmp_path / "model"))
    (user_path / "mtplx").mkdir()
    (user_path / "mtplx" / "tuning.json").write_text(content)
    assert recorded_depth(folder) is None
    save(folder, Measured(1, {0: 1.0, 1: 1.7}))
    assert recorded_depth(folder) == 1


def test_plain_decoding_wins_where_no_depth_beats_it(tmp_path: Path, monkeypatch) -> None:
    seconds = {0: 1.0, 1: 1.1, 2: 2.0, 3: 3.0, 4: 4.0}
    monkeypatch.setattr(tuning, "_seconds", lambda model, prompt, tokens, depth: seconds[depth])
    from llm_mtplx.engine.load import load

    model = load(copy_demo(tmp_path / "model"), print)
    assert tuning.measure(model, 8, 1).depth == 0
    seconds[2] = 0.5
    assert tuning.measure(model, 8, 1).depth == 2
    assert replace(model, depth=2).depth == 2


def test_the_command_measures_saves_and_auto_uses_it(tmp_path: Path) -> None:
    def ok(*args: str) -> str:
        result = CliRunner().invoke(cli, args)
        assert result.exit_code == 0, result.output
        return result.stdout

    folder = save_random_model(tmp_path / "acme" / "random")
    ok("mtplx", "add", str(folder), "-a", "random")
    report = json.loads(ok("mtplx", "tune", "random", "--tokens", "8", "--repeats", "1", "--json"))
    assert set(report["tokens_per_s"]) == {"0", "1", "2", "3", "4"}
    assert report["depth"] == recorded_depth(inspect(folder))
    ok("-m", "random", "Hello", "-o", "max_tokens", "8", "-o", "draft", "auto")
    log = json.loads(ok("logs", "--json", "-n", "1"))[0]
    assert log["response_json"]["mtp"]["depth"] == report["depth"]
    assert "<- used by draft auto" in ok("mtplx", "tune", "random", "--tokens", "8")


def test_without_a_head_there_is_nothing_to_tune(tmp_path: Path) -> None:
    folder = copy_demo(tmp_path / "acme" / "plain")
    save_weights(folder / "model.safetensors", trunk_of(demo_weights()))
    CliRunner().invoke(cli, ["mtplx", "add", str(folder), "-a", "plain"])
    result = CliRunner().invoke(cli, ["mtplx", "tune", "plain"])
    assert result.exit_code == 1
    assert "no MTP head" in result.stderr
