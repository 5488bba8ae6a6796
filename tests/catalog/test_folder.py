"""A folder that cannot be run is refused with one line that says why."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from llm_mtplx.catalog.folder import inspect
from llm_mtplx.errors import ModelFolderError

from ..folders import copy_demo, demo_weights, edit_json, head_of, save, trunk_of


def remove_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def garble_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": ')


def list_config(folder: Path) -> None:
    (folder / "config.json").write_text("[]")


def other_architecture(folder: Path) -> None:
    edit_json(folder / "config.json", lambda config: config.update(model_type="mamba"))


def sparse_experts(folder: Path) -> None:
    change = {"num_experts": 8, "decoder_sparse_step": 2}
    edit_json(folder / "config.json", lambda c: c["text_config"].update(change))


def other_layer_order(folder: Path) -> None:
    kinds = ["full_attention"] * 4
    edit_json(folder / "config.json", lambda c: c["text_config"].update(layer_types=kinds))


def one_bit(folder: Path) -> None:
    quantization = {"group_size": 64, "bits": 4, "lm_head": {"group_size": 64, "bits": 1}}
    edit_json(folder / "config.json", lambda c: c.update(quantization=quantization))


def fp8(folder: Path) -> None:
    edit_json(
        folder / "config.json", lambda c: c.update(quantization_config={"quant_method": "fp8"})
    )


def code_of_its_own(folder: Path) -> None:
    edit_json(folder / "config.json", lambda c: c.update(model_file="evil.py"))


def stock_type_over_rotated_weights(folder: Path) -> None:
    edit_json(folder / "config.json", lambda c: c.update(hadamard_config="hadamard.json"))


def newer_pack(folder: Path) -> None:
    (folder / "mtplx_runtime.json").write_text('{"min_engine_version": "2.13.0"}')


def version_of_another_kind(folder: Path) -> None:
    (folder / "mtplx_runtime.json").write_text('{"min_engine_version": "next"}')


def bad_contract(folder: Path) -> None:
    (folder / "mtplx_runtime.json").write_text('{"mtp_depth_default": "deep"}')


def contract_of_another_kind(folder: Path) -> None:
    (folder / "mtplx_runtime.json").write_text('{"mtp_contract": "x"}')
    edit_json(folder / "config.json", lambda config: config.update(mtplx_mtp_contract={"a": 1}))


def remove_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def truncate_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])


def garble_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"<html>Not found</html>")


def empty_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


def missing_shard(folder: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def named_head_missing(folder: Path) -> None:
    edit_json(
        folder / "config.json",
        lambda c: c.update(mlx_lm_extra_tensors={"mtp_file": "head.safetensors"}),
    )


def named_head_outside(folder: Path) -> None:
    (folder.parent / "head.safetensors").write_bytes(b"")
    edit_json(
        folder / "config.json",
        lambda c: c.update(mlx_lm_extra_tensors={"mtp_file": "../head.safetensors"}),
    )


def named_head_of_another_format(folder: Path) -> None:
    (folder / "mtplx_runtime.json").write_text('{"mtp_file": "head.npz"}')


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (remove_config, "no config.json"),
        (garble_config, "cannot be read"),
        (list_config, "does not contain a JSON object"),
        (other_architecture, "type 'mamba', which is not supported. Supported types: qwen3_5"),
        (sparse_experts, "experts in only some layers"),
        (other_layer_order, "must be one full_attention after every 3 linear_attention"),
        (one_bit, "1 bits in lm_head, which is not supported. Supported: 2, 3, 4, 5, 6, 8"),
        (fp8, "quantized with 'fp8', which is not supported"),
        (code_of_its_own, "custom module (evil.py)"),
        (stock_type_over_rotated_weights, "would produce nonsense"),
        (newer_pack, "requires MTPLX 2.13.0"),
        (version_of_another_kind, "requires MTPLX next"),
        (bad_contract, "mtp_depth_default: input should be a valid integer"),
        (contract_of_another_kind, "mtp_contract: input should be a valid dictionary"),
        (remove_weights, "no model*.safetensors"),
        (truncate_weights, "download is incomplete"),
        (garble_weights, "not a readable safetensors file"),
        (empty_weights, "not a readable safetensors file"),
        (missing_shard, "1 of 2 weight files are missing (first: model-00002-of-00002"),
        (named_head_missing, "head.safetensors, which is missing"),
        (named_head_outside, "outside the folder"),
        (named_head_of_another_format, "head.npz is not a safetensors file"),
    ],
)
def test_refusals(tmp_path: Path, damage: Callable[[Path], None], says: str) -> None:
    folder = copy_demo(tmp_path / "model")
    damage(folder)
    with pytest.raises(ModelFolderError) as caught:
        inspect(folder)
    message = str(caught.value)
    assert says in message
    assert "\n" not in message


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match="does not exist"):
        inspect(tmp_path / "gone")


def test_demo_has_its_head(tmp_path: Path) -> None:
    folder = inspect(copy_demo(tmp_path / "model"))
    assert folder.head is not None
    assert len(folder.head.tensors) == 15
    assert folder.declares_head


def test_a_symlinked_folder_is_a_folder(tmp_path: Path) -> None:
    real = copy_demo(tmp_path / "real")
    link = tmp_path / "link"
    link.symlink_to(real)
    assert inspect(link).head is not None


@pytest.mark.parametrize(
    "place",
    [
        "mtp.safetensors",
        "mtp/weights.safetensors",
        "model-mtp.safetensors",
        "model-mtp-head.safetensors",
    ],
)
def test_a_sidecar_comes_before_the_shards(tmp_path: Path, place: str) -> None:
    folder = copy_demo(tmp_path / "model")
    save(folder / place, head_of(demo_weights()))
    head = inspect(folder).head
    assert head is not None
    assert {file for file, _, _ in head.tensors.values()} == {folder / place}


@pytest.mark.parametrize("named_in", ["config.json", "mtplx_runtime.json"])
def test_a_named_sidecar_comes_first(tmp_path: Path, named_in: str) -> None:
    folder = copy_demo(tmp_path / "model")
    save(folder / "mtp.safetensors", head_of(demo_weights()))
    save(folder / "head.safetensors", head_of(demo_weights()))
    if named_in == "config.json":
        edit_json(
            folder / named_in,
            lambda c: c.update(mlx_lm_extra_tensors={"mtp_file": "head.safetensors"}),
        )
    else:
        (folder / named_in).write_text('{"mtp_sidecar_file": "head.safetensors"}')
    head = inspect(folder).head
    assert head is not None
    assert {file for file, _, _ in head.tensors.values()} == {folder / "head.safetensors"}


def test_no_head(tmp_path: Path) -> None:
    folder = copy_demo(tmp_path / "model")
    save(folder / "model.safetensors", trunk_of(demo_weights()))
    assert inspect(folder).head is None
