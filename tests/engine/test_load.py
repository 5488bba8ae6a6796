"""Every place and form of a head gives the same head; a head that does not fit is refused."""

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.load import LoadedModel, load
from llm_mtplx.errors import ModelFolderError

from ..folders import (
    Weights,
    absolute_norms,
    copy_demo,
    demo_weights,
    edit_json,
    head_of,
    save,
    trunk_of,
)


def quiet(line: str) -> None:
    raise AssertionError(line)


def arrays(module) -> dict[str, np.ndarray]:
    return {
        name: np.array(value.astype(mx.float32))
        for name, value in tree_flatten(module.parameters())
    }


@pytest.fixture(scope="module")
def demo() -> LoadedModel:
    return load(MODEL_DIR, quiet)


def assert_same_model(got: LoadedModel, want: LoadedModel) -> None:
    assert got.head is not None and want.head is not None
    for ours, theirs in ((got.head, want.head), (got.trunk.model, want.trunk.model)):
        got_arrays, want_arrays = arrays(ours), arrays(theirs)
        assert got_arrays.keys() == want_arrays.keys()
        for name in want_arrays:
            assert np.array_equal(got_arrays[name], want_arrays[name]), name


def test_every_head_parameter_comes_from_the_file(demo: LoadedModel) -> None:
    stored = head_of(demo_weights())
    assert demo.head is not None
    got = arrays(demo.head)
    assert {f"mtp.{name}" for name in got} == set(stored)
    for name, value in got.items():
        plain = np.array(stored[f"mtp.{name}"].astype(mx.float32))
        wanted = np.array((stored[f"mtp.{name}"] + 1.0).astype(mx.float32))
        norm = name.endswith("norm.weight") or "pre_fc_norm" in name
        assert np.array_equal(value, wanted if norm else plain), name


def sanitized_trunk(demo: LoadedModel) -> Weights:
    """The trunk as mlx-lm converts it: absolute norms, conv1d as [C, K, 1]."""
    return dict(tree_flatten(demo.trunk.model.parameters()))


def raw_sidecar(folder: Path, demo: LoadedModel) -> None:
    save(folder / "model.safetensors", trunk_of(demo_weights()))
    save(folder / "mtp.safetensors", head_of(demo_weights()))
    mark(folder, "delta")


def absolute_sidecar(folder: Path, demo: LoadedModel) -> None:
    save(folder / "model.safetensors", trunk_of(demo_weights()))
    save(folder / "mtp.safetensors", absolute_norms(head_of(demo_weights())))
    mark(folder, "absolute")


def raw_sidecar_next_to_a_converted_trunk(folder: Path, demo: LoadedModel) -> None:
    save(folder / "model.safetensors", sanitized_trunk(demo))
    save(folder / "model-mtp.safetensors", head_of(demo_weights()))
    mark(folder, "delta_plus_one")


def absolute_head_inside_a_converted_trunk(folder: Path, demo: LoadedModel) -> None:
    head = absolute_norms(head_of(demo_weights()))
    prefixed = {f"language_model.{name}": value for name, value in head.items()}
    save(folder / "model.safetensors", {**sanitized_trunk(demo), **prefixed})
    mark(folder, "absolute")


def text_only(folder: Path, demo: LoadedModel) -> None:
    """``qwen3_5_text``: no nested config, keys without ``language_model``."""
    weights = {
        name.replace("model.language_model.", "model."): value
        for name, value in demo_weights().items()
    }
    save(folder / "model.safetensors", weights)

    def flatten(config: dict) -> None:
        text = config.pop("text_config")
        config.update(text, model_type="qwen3_5_text")

    edit_json(folder / "config.json", flatten)


def mark(folder: Path, encoding: str) -> None:
    edit_json(folder / "config.json", lambda c: c.update(mtplx_mtp_norm_encoding=encoding))


@pytest.mark.parametrize(
    "form",
    [
        raw_sidecar,
        absolute_sidecar,
        raw_sidecar_next_to_a_converted_trunk,
        absolute_head_inside_a_converted_trunk,
        text_only,
    ],
)
def test_every_form_gives_the_same_model(
    tmp_path: Path, demo: LoadedModel, form: Callable[[Path, LoadedModel], None]
) -> None:
    folder = copy_demo(tmp_path / "model")
    form(folder, demo)
    assert_same_model(load(folder, quiet), demo)


@pytest.mark.parametrize("deltas", [True, False])
def test_unmarked_norms_are_told_by_their_means(
    tmp_path: Path, demo: LoadedModel, deltas: bool
) -> None:
    """With the means published for real heads: attention 1.74, others 1.35; ``norm`` overlaps."""
    head = head_of(demo_weights())
    for name, value in head.items():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            mean = 0.74
        elif name.endswith("mtp.norm.weight"):
            mean = 2.58
        elif name.endswith("norm.weight") or "pre_fc_norm" in name:
            mean = 0.35
        else:
            continue
        head[name] = mx.full(value.shape, mean if deltas else mean + 1, dtype=value.dtype)
    folder = copy_demo(tmp_path / "model")
    save(folder / "model.safetensors", sanitized_trunk(demo))
    save(folder / "mtp.safetensors", head)
    loaded = load(folder, quiet).head
    assert loaded is not None
    gain = float(loaded.layers[0].self_attn.q_norm.weight.astype(mx.float32).mean())
    assert gain == pytest.approx(1.74, abs=0.01)


def test_no_head_is_plain_decoding_and_one_line(tmp_path: Path) -> None:
    folder = copy_demo(tmp_path / "model")
    save(folder / "model.safetensors", trunk_of(demo_weights()))
    lines: list[str] = []
    assert load(folder, lines.append).head is None
    assert lines == [
        "model declares an MTP head but has no weights for it; it decodes without drafts."
    ]


def partial(head: Weights) -> Weights:
    del head["mtp.fc.weight"]
    return head


def unknown_tensor(head: Weights) -> Weights:
    return {**head, "mtp.fc.scales": mx.zeros((4,))}


def wrong_shape(head: Weights) -> Weights:
    return {**head, "mtp.norm.weight": mx.zeros((7,))}


def all_zeros(head: Weights) -> Weights:
    return {**head, "mtp.fc.weight": mx.zeros_like(head["mtp.fc.weight"])}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (partial, "1 of 15 are missing (first: fc.weight)"),
        (unknown_tensor, "1 are not part of a head (first: fc.scales)"),
        (wrong_shape, "norm.weight has shape [7]; the model needs [192]"),
        (all_zeros, "fc.weight is all zeros"),
    ],
)
def test_a_wrong_head_is_refused(
    tmp_path: Path, change: Callable[[Weights], Weights], says: str
) -> None:
    folder = copy_demo(tmp_path / "model")
    save(folder / "mtp.safetensors", change(head_of(demo_weights())))
    with pytest.raises(ModelFolderError) as caught:
        load(folder, quiet)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_head_of_two_layers_is_refused(tmp_path: Path) -> None:
    folder = copy_demo(tmp_path / "model")
    edit_json(folder / "config.json", lambda c: c["text_config"].update(mtp_num_hidden_layers=2))
    with pytest.raises(ModelFolderError, match="2 layers"):
        load(folder, quiet)


def test_weights_that_do_not_fit_the_config_are_refused(tmp_path: Path) -> None:
    folder = copy_demo(tmp_path / "model")
    edit_json(folder / "config.json", lambda c: c["text_config"].update(hidden_size=128))
    with pytest.raises(ModelFolderError, match="cannot be loaded") as caught:
        load(folder, quiet)
    assert "\n" not in str(caught.value)


def test_repo_code_is_never_run(tmp_path: Path) -> None:
    folder = copy_demo(tmp_path / "model")
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    edit_json(folder / "config.json", lambda c: c.update(model_file="evil.py"))
    with pytest.raises(ModelFolderError, match="custom module"):
        load(folder, quiet)


def test_a_broken_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = copy_demo(tmp_path / "model")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelFolderError, match="no readable tokenizer"):
        load(folder, quiet)
