"""One set of weights in every form it is found in: the same answers, and the same drafts."""

import json
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from llm_mtplx.architectures.quantization import quantize_as_stored
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.load import LoadedModel, load
from llm_mtplx.errors import ModelFolderError

from .. import raw
from ..folders import Weights, edit_json, head_of, save, trunk_of
from ..forms import (
    arrays,
    assert_same_outputs,
    columns,
    converted,
    pack,
    quantize_trunk,
    save_folder,
    save_raw,
    unpack,
)

CONFIG = json.loads((MODEL_DIR / "config.json").read_text()) | {"mtp_norm_encoding": "absolute"}
LAYER = [f"mtp.layers.0.self_attn.{n}_proj" for n in "qkvo"]
LAYER += [f"mtp.layers.0.mlp.{n}_proj" for n in ("gate", "up", "down")]
HEADS: dict[str, dict[str, tuple[int, int]]] = {
    "plain": {},
    "layer only": dict.fromkeys(LAYER, (4, 64)),
    "all": dict.fromkeys([*LAYER, "mtp.fc"], (8, 64)),
    "mixed": {name: (bits, 32) for name, bits in zip(LAYER, (2, 3, 4, 5, 6, 8, 4), strict=True)},
}


def quiet(line: str) -> None:
    raise AssertionError(line)


def assert_same_arrays(got: LoadedModel, want: LoadedModel) -> None:
    assert got.head is not None and want.head is not None
    for ours, theirs in ((got.head, want.head), (got.trunk.model, want.trunk.model)):
        ours, theirs = arrays(ours), arrays(theirs)
        assert ours.keys() == theirs.keys()
        assert all(bool(mx.array_equal(ours[name], theirs[name])) for name in theirs)


Quantized = tuple[dict, Weights, Weights]  # config, packed trunk, plain weights it came from


@pytest.fixture(scope="module")
def quantized_demo() -> Quantized:
    plain = converted(load(MODEL_DIR, quiet))
    config, trunk = quantize_trunk(load(MODEL_DIR, quiet), CONFIG)
    return config, trunk, plain


def save_pack(folder: Path, quantized: Quantized, forms: dict[str, tuple[int, int]]) -> Path:
    """A pack: quantized trunk, and the head in a file of its own."""
    config, trunk, plain = quantized
    save_folder(folder, config, trunk)
    save(folder / "mtp.safetensors", pack(head_of(plain), forms))
    return folder


def save_twin(folder: Path, quantized: Quantized, forms: dict[str, tuple[int, int]]) -> Path:
    _, trunk, plain = quantized
    rounded = {**trunk, **pack(head_of(plain), forms)}
    return save_folder(folder, CONFIG, unpack(rounded, columns(plain)))


@pytest.mark.parametrize("head", HEADS)
def test_quantized_trunk_and_head(tmp_path: Path, quantized_demo: Quantized, head: str) -> None:
    packed = load(save_pack(tmp_path / "packed", quantized_demo, HEADS[head]), quiet)
    twin = load(save_twin(tmp_path / "twin", quantized_demo, HEADS[head]), quiet)
    widths = {m.bits for m in packed.trunk.model.modules() if hasattr(m, "bits")}
    assert widths == {2, 3, 4, 5, 6, 8}
    assert packed.head is not None
    assert sum(hasattr(m, "bits") for m in packed.head.modules()) == len(HEADS[head])
    assert_same_outputs(packed, twin)


def test_packed_shapes_are_believed_before_the_config(
    tmp_path: Path, quantized_demo: Quantized
) -> None:
    right = save_pack(tmp_path / "right", quantized_demo, HEADS["all"])
    wrong = save_pack(tmp_path / "wrong", quantized_demo, HEADS["all"])

    def lie(config: dict) -> None:
        config["quantization"] = {"group_size": 128, "bits": 3}
        config["mtplx_mtp_quantization"] = {"prequantized": True, "bits": 4, "group_size": 32}

    edit_json(wrong / "config.json", lie)
    assert_same_arrays(load(wrong, quiet), load(right, quiet))


def test_a_pack_of_no_known_width_is_refused(tmp_path: Path, quantized_demo: Quantized) -> None:
    folder = save_pack(tmp_path / "model", quantized_demo, HEADS["all"])
    head = pack(head_of(quantized_demo[2]), HEADS["all"])
    head["mtp.fc.weight"] = head["mtp.fc.weight"][:, :-8]
    save(folder / "mtp.safetensors", head)
    with pytest.raises(ModelFolderError, match=r"fc is packed as .* not a known quantization"):
        load(folder, quiet)


@pytest.mark.parametrize(
    ("mode", "bits", "group"), [("mxfp4", 4, 32), ("nvfp4", 4, 16), ("mxfp8", 8, 32)]
)
def test_floating_point_packs(mode: str, bits: int, group: int) -> None:
    module = nn.Sequential(nn.Linear(128, 64, bias=False))
    form = {"group_size": group, "bits": bits, "mode": mode}
    packed, scales = mx.quantize(module.layers[0].weight, **form)
    weights = {"layers.0.weight": packed, "layers.0.scales": scales}
    quantize_as_stored(Path("model"), module, weights)
    module.load_weights(list(weights.items()), strict=True)
    x = mx.random.normal((3, 128))
    wanted = x @ mx.dequantize(packed, scales, **form).T
    assert mx.abs(module(x) - wanted).max() <= 1e-5 * mx.abs(wanted).max()


def test_what_a_pack_says_of_itself(tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "model", CONFIG, converted(load(MODEL_DIR, quiet)))
    told = {
        "mtplx_version": "2.12.2",
        "min_engine_version": "2.12.0",
        "mtp_depth_max": 3,
        "recommended_draft_sampler": {"temperature": 0.7, "top_p": 0.9, "top_k": 10},
        "mtp_contract": {"hidden_variant": "post_norm"},
    }
    file = folder / "mtplx_runtime.json"
    file.write_text(json.dumps(told))
    model = load(folder, quiet)
    contract = model.folder.contract
    assert model.head is not None
    assert contract.depth is None, "a ceiling is no recommendation"
    assert contract.recommended_draft_sampler is not None
    assert contract.recommended_draft_sampler.temperature == 0.7

    file.write_text(json.dumps({**told, "mtp_depth_default": 5}))
    assert load(folder, quiet).folder.contract.depth == 3
    file.write_text(json.dumps({**told, "recommended_generation_mode": "ar"}))
    assert load(folder, quiet).depth == 0
    file.write_text(json.dumps({**told, "mtp_contract": {"hidden_variant": "pre_norm"}}))
    lines: list[str] = []
    assert load(folder, lines.append).head is None
    assert lines == [
        "model needs its MTP head run with hidden_variant 'pre_norm', which is not supported; "
        "it decodes without drafts."
    ]


FAMILIES = ("qwen3_5_moe", "qwen3_next")
Arrays = Callable[[raw.Arrays], raw.Arrays]
LAYOUTS: dict[str, Arrays] = {
    "fused": lambda w: w,
    "transposed": raw.transpose_experts,
    "numbered": raw.number_experts,
}


@pytest.fixture(scope="module", params=FAMILIES)
def experts(request, tmp_path_factory) -> LoadedModel:
    folder = tmp_path_factory.mktemp("experts") / request.param
    return load(save_raw(folder, request.param), quiet)


def family_of(model: LoadedModel) -> str:
    return model.folder.config["model_type"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_experts(tmp_path: Path, experts: LoadedModel, layout: str) -> None:
    family = family_of(experts)
    weights = raw.checkpoint(family)
    fused = raw.fuse_experts(weights) if family == "qwen3_next" else weights
    folder = save_raw(tmp_path / "model", family, LAYOUTS[layout](fused))
    assert_same_arrays(load(folder, quiet), experts)


def test_every_expert_comes_from_the_file(experts: LoadedModel) -> None:
    stored = raw.checkpoint(family_of(experts))
    if family_of(experts) == "qwen3_next":
        stored = raw.fuse_experts(stored)
    head = arrays(experts.head)
    fused = stored["mtp.layers.0.mlp.experts.gate_up_proj"]
    assert np.array_equal(head["layers.0.mlp.switch_mlp.gate_proj.weight"], fused[:, :32])
    assert np.array_equal(head["layers.0.mlp.switch_mlp.up_proj.weight"], fused[:, 32:])


def test_experts_as_mlx_lm_converts_and_quantizes_them(
    tmp_path: Path, experts: LoadedModel
) -> None:
    plain = converted(experts)
    config = raw.config(family_of(experts)) | {"mtp_norm_encoding": "absolute"}
    folder = save_folder(tmp_path / "converted", config, plain)
    assert_same_arrays(load(folder, quiet), experts)

    told, trunk = quantize_trunk(load(folder, quiet), config)
    forms = {"mtp.fc": (8, 64), "mtp.layers.0.mlp.switch_mlp.up_proj": (8, 32)}
    head = pack(head_of(plain), forms)
    packed = load(save_folder(tmp_path / "packed", told, {**trunk, **head}), quiet)
    rounded = unpack({**trunk, **head}, columns(plain))
    twin = load(save_folder(tmp_path / "twin", config, rounded), quiet)
    assert packed.trunk.model.layers[0].mlp.switch_mlp.up_proj.bits == 3
    assert packed.trunk.model.layers[0].mlp.gate.bits == 8
    assert_same_outputs(packed, twin)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda w: w.pop("mtp.layers.0.mlp.experts.down_proj"), "down_proj is missing"),
        (
            lambda w: w.update(
                {"mtp.layers.0.mlp.experts.down_proj": np.zeros((8, 7, 64), np.float32)}
            ),
            "not a known expert layout",
        ),
        (
            lambda w: w.update(
                {"mtp.layers.0.mlp.experts.1.up_proj.weight": np.zeros((32, 64), np.float32)}
            ),
            "some of the experts of layers.0.mlp.switch_mlp.up_proj.weight are missing",
        ),
    ],
)
def test_experts_that_are_not_whole_are_refused(tmp_path: Path, change, says: str) -> None:
    weights = raw.checkpoint("qwen3_5_moe")
    change(weights)
    with pytest.raises(ModelFolderError, match=says):
        load(save_raw(tmp_path / "model", "qwen3_5_moe", weights), quiet)


def test_norms_shifted_twice_are_refused(tmp_path: Path) -> None:
    weights = trunk_of(converted(load(MODEL_DIR, quiet)))
    gains = "language_model.model.layers.3.self_attn.q_norm.weight"
    weights[gains] = mx.full(weights[gains].shape, 2.8)
    with pytest.raises(ModelFolderError, match=r"mean gain of 2\.80"):
        load(save_folder(tmp_path / "model", CONFIG, weights), lambda line: None)


def test_a_head_file_named_like_a_shard_needs_no_prefix(
    tmp_path: Path, quantized_demo: Quantized
) -> None:
    """mlx-lm would take such a file for a part of the trunk."""
    folder = save_pack(tmp_path / "model", quantized_demo, HEADS["all"])
    bare = {
        name.removeprefix("mtp."): value
        for name, value in mx.load(str(folder / "mtp.safetensors")).items()
    }
    right = load(folder, quiet)
    (folder / "mtp.safetensors").unlink()
    save(folder / "model-mtp.safetensors", bare)
    assert_same_arrays(load(folder, quiet), right)
