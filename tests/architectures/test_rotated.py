"""Hadamard-rotated packs say what the unrotated model says, or are refused."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from llm_mtplx.catalog.folder import inspect
from llm_mtplx.engine.load import LoadedModel, load
from llm_mtplx.errors import ModelFolderError

from ..folders import edit_json, save
from ..forms import assert_same_outputs, logits
from ..rotated import RotatedModel


def quiet(line: str) -> None:
    raise AssertionError(line)


@pytest.fixture(scope="module")
def model() -> RotatedModel:
    return RotatedModel()


@pytest.fixture(scope="module")
def unrotated(model: RotatedModel, tmp_path_factory) -> LoadedModel:
    return load(model.save_unrotated(tmp_path_factory.mktemp("rotated") / "plain"), quiet)


@pytest.mark.parametrize("schema", [1, 2])
def test_rotated_equals_unrotated(
    tmp_path: Path, model: RotatedModel, unrotated: LoadedModel, schema: int
) -> None:
    loaded = load(model.save(tmp_path / "model", schema), quiet)
    assert loaded.trunk.dtype == mx.float16
    ids = [5, 9, 300]
    for ours, theirs in zip(logits(loaded, ids), logits(unrotated, ids), strict=True):
        assert np.abs(ours - theirs).max() <= 2e-2 * np.abs(theirs).max()
    # The same in float32, where only the embedding is rounded.
    loaded.trunk.model.set_dtype(mx.float32)
    assert_same_outputs(loaded, unrotated, close=1e-3, length=8)


def test_a_head_among_rotated_weights_is_left_out(tmp_path: Path, model: RotatedModel) -> None:
    folder = model.save(tmp_path / "model")
    (folder / "mtp.safetensors").unlink()
    weights = mx.load(str(folder / "model.safetensors"))
    save(folder / "model.safetensors", {**weights, **model.head})
    lines: list[str] = []
    assert load(folder, lines.append).head is None
    assert lines == ["model has no MTP head; it decodes without drafts."]


def drop(name: str):
    def change(folder: Path) -> None:
        weights = mx.load(str(folder / "model.safetensors"))
        del weights[f"language_model.{name}"]
        save(folder / "model.safetensors", weights)

    return change


def put(name: str, value: mx.array):
    def change(folder: Path) -> None:
        weights = mx.load(str(folder / "model.safetensors"))
        save(folder / "model.safetensors", {**weights, f"language_model.{name}": value})

    return change


def configure(**changes):
    return lambda folder: edit_json(folder / "config.json", lambda c: c.update(changes))


def describe(**changes):
    named = {f"prism.hadamard.{name}": value for name, value in changes.items()}
    return lambda folder: edit_json(folder / "hadamard.json", lambda m: m.update(named))


def shorten_manifest(folder: Path) -> None:
    edit_json(folder / "config.json", lambda c: c["modules"].pop())


def forget_rotations(folder: Path) -> None:
    """The same weights under a stock type: what a loader that knows no rotation would run."""
    edit_json(folder / "config.json", lambda c: c.update(model_type="qwen3_5"))
    edit_json(folder / "config.json", lambda c: c.pop("hadamard_config"))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (forget_rotations, "would produce nonsense"),
        (configure(schema_version=3), "schema_version is 3; supported are 1 and 2"),
        (configure(tensor_namespace="other"), "tensor_namespace is 'other'"),
        (configure(gdn_activation_layout="split"), "gdn_activation_layout is 'split'"),
        (configure(base_model_type="llama"), "base_model_type is 'llama'"),
        (configure(quantization={"bits": 4, "group_size": 128}), "quantization is"),
        (configure(modules=[]), "does not list its rotated modules"),
        (configure(modules=[{"path": "lm_head", "block": 256}]), "lm_head has a block of 256"),
        (describe(version=2), "version is 2; only 1 is supported"),
        (describe(transform="random"), "transform is 'random'"),
        (lambda folder: (folder / "hadamard.json").unlink(), "hadamard.json, which describes"),
        (shorten_manifest, "packed but not listed"),
        (drop("lm_head.scales"), "lm_head is listed but not packed"),
        (drop("lm_head.signs"), "lm_head has no signs"),
        (put("model.layers.0.mlp.up_proj.signs", mx.ones(512)), "up_proj has signs but no block"),
        (put("lm_head.signs", mx.ones(512, mx.float16)), "signs of lm_head are F16 [512]"),
        (put("lm_head.signs", mx.ones(256)), "signs of lm_head are F32 [256], not F32 [512]"),
        (
            put("model.layers.0.linear_attn.conv1d.weight", mx.ones((1024, 1, 4))),
            "not that of a converted model",
        ),
    ],
)
def test_refusals(tmp_path: Path, model: RotatedModel, damage, says: str) -> None:
    folder = model.save(tmp_path / "model")
    damage(folder)
    with pytest.raises(ModelFolderError) as caught:
        inspect(folder)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_signs_that_are_no_signs_are_refused(tmp_path: Path, model: RotatedModel) -> None:
    folder = model.save(tmp_path / "model")
    put("lm_head.signs", mx.full((512,), 0.5))(folder)
    with pytest.raises(ModelFolderError, match=r"only -1 and \+1"):
        load(folder, quiet)
