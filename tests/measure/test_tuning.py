"""What was measured is saved for one model, machine and version, and used from then on."""

import json
import os
from pathlib import Path

import pytest

from llm_mtplx import jsonfile
from llm_mtplx.catalog.folder import inspect
from llm_mtplx.commands.tune import table
from llm_mtplx.engine import tuned
from llm_mtplx.engine.tuned import Record, record_key, recorded
from llm_mtplx.measure.depths import Measured, save
from llm_mtplx.settings import tuning_path

from ..folders import copy_demo, demo_weights, trunk_of
from ..folders import save as save_weights
from ..llm_command import invoke, last_log, ok

MEASURED = Measured({0: [1.0], 2: [1.7]}, {0: 1.0, 2: 2.5})


def test_records_are_found_again(tmp_path: Path) -> None:
    folder = inspect(copy_demo(tmp_path / "model"))
    assert recorded(folder) is None
    save(record_key(folder), Measured({0: [10.0], 1: [15.0]}, {0: 1.0, 1: 1.8}))
    assert recorded(folder) == Record(depth=1, costs={0: 1.0, 1: 1.2})
    save(record_key(folder), Measured({0: [10.0], 1: [5.0]}, {0: 1.0, 1: 1.0}))
    assert recorded(folder) == Record(depth=0, costs={0: 1.0, 1: 2.0})


@pytest.mark.parametrize(
    ("record", "want"),
    [
        ({"depth": 2}, Record(depth=2)),
        ({"depth": 9}, None),
        ({"costs": {"0": 1.0}}, None),
        ({"depth": 2, "costs": {}}, None),
        ({"depth": 2, "costs": {"0": 1.0, "7": 2.0}}, None),
        ({"depth": 2, "costs": {"0": 1.0, "1": 0}}, None),
        ({"depth": 2, "costs": [1.0]}, None),
        (3, None),
    ],
)
def test_a_record_of_depths_alone_and_what_is_none(tmp_path: Path, record, want) -> None:
    folder = inspect(copy_demo(tmp_path / "model"))
    jsonfile.write(tuning_path(), {record_key(folder): record})
    assert recorded(folder) == want


@pytest.mark.parametrize("changed", ["backend", "blas", "versions", "device"])
def test_another_machine_or_version_has_another_key(tmp_path, monkeypatch, changed: str) -> None:
    folder = inspect(copy_demo(tmp_path / "model"))
    save(record_key(folder), MEASURED)
    told = tuned.facts()
    monkeypatch.setattr(tuned, "facts", lambda: {**told, changed: "other"})
    assert recorded(folder) is None


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
    assert recorded(folder) is None
    save(record_key(folder), MEASURED)
    assert recorded(folder).depth == 2


def test_plain_decoding_wins_where_no_depth_beats_it() -> None:
    tokens = {0: 1.0, 1: 1.6, 2: 2.1}
    rates = {0: [5.0, 6.0, 7.0], 1: [6.0, 6.0, 6.0], 2: [1.0, 1.0, 9.0]}
    assert Measured(rates, tokens).depth == 0
    rates = {0: [5.0, 6.0, 7.0], 1: [9.0, 1.0, 8.0], 2: [7.0, 7.0, 9.0]}
    measured = Measured(rates, tokens)
    assert measured.depth == 1
    assert measured.ratios() == {0: 1.0, 1: 8 / 6, 2: 7 / 6}
    assert measured.costs == {0: 1.0, 1: pytest.approx(1.6 * 7 / 9), 2: pytest.approx(2.1 * 7 / 9)}
    plain, one, two = table(measured)
    assert plain.count("█") < two.count("█") < one.count("█") == 40
    assert [line.endswith("<- chosen") for line in (plain, one, two)] == [0, 1, 0]


def test_the_command_measures_saves_and_auto_uses_it(tmp_path: Path, monkeypatch) -> None:
    # The processes that measure are llm's own and would use another BLAS than this one.
    monkeypatch.setenv("LLM_MTPLX_BLAS", "off")

    folder = copy_demo(tmp_path / "acme" / "demo")
    ok("mtplx", "add", str(folder), "-a", "demo")
    few = ("--tokens", "8", "--repeats", "1", "--depths", "2")
    report = json.loads(ok("mtplx", "tune", "demo", *few, "--json"))
    assert report["samples"].keys() == {"0", "2"}
    assert all(len(taken) == 1 and taken[0] > 0 for taken in report["samples"].values())
    (record,) = json.loads(tuning_path().read_text()).values()
    assert report["depth"] == record["depth"]
    assert report["costs"] == record["costs"]
    assert record["costs"].keys() == {"0", "2"}
    # Whichever won here: the saved costs are what counts.
    for at, (saved, drafted) in enumerate(
        (
            ({"depth": 2}, True),
            ({"depth": 0}, False),
            ({"depth": 0, "costs": {"0": 1.0, "2": 1.01}}, True),
            ({"depth": 2, "costs": {"0": 1.0, "2": 9.0}}, False),
        )
    ):
        os.utime(folder / "config.json", (at, at))  # so that it is loaded anew
        tuning_path().write_text(json.dumps({record_key(inspect(folder)): saved}))
        ok("-m", "demo", "Hello", "-o", "max_tokens", "8", "-o", "draft", "auto")
        mtp = last_log()["response_json"]["mtp"]
        assert any(mtp["drafted"]) == drafted, saved


def test_a_depth_there_is_not_is_a_usage_error() -> None:
    result = invoke("mtplx", "tune", "--depths", "1,9")
    assert result.exit_code == 2
    assert "0,1,2,3,4" in result.stderr


def test_without_a_head_there_is_nothing_to_tune(tmp_path: Path) -> None:
    folder = copy_demo(tmp_path / "acme" / "plain")
    save_weights(folder / "model.safetensors", trunk_of(demo_weights()))
    ok("mtplx", "add", str(folder), "-a", "plain")
    result = invoke("mtplx", "tune", "plain")
    assert result.exit_code == 1
    assert "no MTP head" in result.stderr
