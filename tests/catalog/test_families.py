"""Which family a folder belongs to, and what follows from it."""

import json
from pathlib import Path

import pytest

from llm_mtplx.catalog import families
from llm_mtplx.catalog.contract import DraftSampler
from llm_mtplx.catalog.families import by_name, depth_at, family_at
from llm_mtplx.catalog.folder import inspect
from llm_mtplx.chat.effort import with_effort
from llm_mtplx.chat.tokenizer import ChatTokenizer
from llm_mtplx.engine.defaults import resolve_draft_sampling, sampling_defaults
from llm_mtplx.protocol import Request
from llm_mtplx.speculative.distributions import Sampling

from ..folders import copy_demo


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("Qwen3.8-27B-MTPLX-Optimized-Speed", families.QWEN3_8),
        ("Qwen3.8-27B-MTPLX-Bare-Speed-FP16", families.QWEN3_8),
        ("qwen38-27b-optimized-speed", families.QWEN3_8),
        ("qwen3_8_27b", families.QWEN3_8),
        ("Qwen3.6-35B-A3B-MTPLX-Optimized-Balance", families.QWEN3_6),
        ("Qwen3.6-27B-8bit", families.QWEN3_6),
        ("Qwen3.5-9B-MTPLX-Optimized-Speed-FP16", families.QWEN3_5),
        ("Qwen3.5-4B", families.QWEN3_5),
        # A number of parameters or bits is no version.
        ("Qwen3-8B", None),
        ("Qwen3-8B-4bit", None),
        ("Qwen-3-8b-mlx", None),
        ("Qwen3-6bit", None),
        ("Qwen3-80B-A3B", None),
        ("Qwen-4B", None),
        # Named like 3.8, and something else.
        ("Qwen3.8-Flash-Next-MTPLX-Optimized-Speed", families.FLASH_NEXT),
        ("qwen4-next", families.FLASH_NEXT),
        ("Qwen3-Next-80B-A3B-Instruct", families.QWEN3_NEXT),
        ("Ternary-Bonsai-2-27B-MTPLX-Optimized-Speed", families.BONSAI_2),
        ("Bonsai-27B", None),
        ("bonsai-2b", None),
        # A Qwen 3.5 underneath; MiMo itself is another architecture.
        ("MiMo-V2.6-Qwen-9B-MTPLX-Optimized-Speed", families.QWEN3_5),
        ("MiMo-7B-RL", None),
        ("some-model", None),
    ],
)
def test_names(name: str, family: families.Family | None) -> None:
    assert by_name(name) is family


def folder(path: Path, runtime: dict | None = None, **config: object) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"model_type": "qwen3_5", **config}))
    if runtime is not None:
        (path / "mtplx_runtime.json").write_text(json.dumps(runtime))
    return path


def test_the_pack_s_record_before_its_name(tmp_path: Path) -> None:
    runtime = {"public_model_id": "mtplx/qwen38-27b", "base_trunk": "Qwen/Qwen3.5-9B"}
    assert family_at(folder(tmp_path / "Qwen3.6-27B", runtime)) is families.QWEN3_8
    runtime = {"public_model_id": "mine", "forge_provenance": {"source_repo": "Qwen/Qwen3.5-4B"}}
    assert family_at(folder(tmp_path / "a" / "Qwen3.6-27B", runtime)) is families.QWEN3_5


def test_the_real_name_before_the_link_s(tmp_path: Path) -> None:
    real = folder(tmp_path / "Qwen3.8-27B")
    link = tmp_path / "Qwen3.5-9B"
    link.symlink_to(real)
    assert family_at(link) is families.QWEN3_8
    plain = folder(tmp_path / "weights")
    named = tmp_path / "qwen3.5"
    named.symlink_to(plain)
    assert family_at(named) is families.QWEN3_5


def test_hugging_face_s_cache_and_names_that_tell_nothing(tmp_path: Path) -> None:
    snapshots = tmp_path / "models--Qwen--Qwen3.8-27B" / "snapshots"
    assert family_at(folder(snapshots / "0123abc")) is families.QWEN3_8
    assert family_at(folder(tmp_path / "qwen3.8" / "mine")) is families.QWEN3_6
    assert family_at(tmp_path / "gone") is families.QWEN3_6


@pytest.mark.parametrize(
    ("model_type", "family"),
    [
        ("prism_hadamard_qwen35", families.BONSAI_2),
        ("qwen3_next", families.QWEN3_NEXT),
        ("qwen4_exp", families.FLASH_NEXT),
    ],
)
def test_some_architectures_need_no_name(
    tmp_path: Path, model_type: str, family: families.Family
) -> None:
    assert family_at(folder(tmp_path / "Qwen3.8-27B", model_type=model_type)) is family


@pytest.mark.parametrize(
    ("name", "runtime", "depth"),
    [
        ("Qwen3.8-27B-MTPLX-Optimized-Speed", None, 3),
        ("Youssofal--Qwen3.6-35B-A3B-MTPLX-Optimized-Speed", None, 2),
        ("MiMo-V2.6-Qwen-9B-MTPLX-Optimized-Speed", None, 2),
        ("My-Bonsai-2-27B", None, 1),
        ("Qwen3.6-35B-A3B", None, 3),
        # A ceiling is no recommendation, but it holds.
        ("Qwen3.6-27B", {"mtp_depth_max": 5}, 3),
        ("Qwen3.6-27B", {"mtp_depth_max": 1}, 1),
    ],
)
def test_depth(tmp_path: Path, name: str, runtime: dict | None, depth: int) -> None:
    assert depth_at(folder(tmp_path / name, runtime)) == depth


def test_the_sampler_comes_from_the_pack_then_the_file_then_the_family(tmp_path: Path) -> None:
    path = copy_demo(tmp_path / "Qwen3.8-27B")
    generation = path / "generation_config.json"

    def sampler() -> tuple[object, ...]:
        told = sampling_defaults(inspect(path))
        return tuple(told.get(key) for key in ("do_sample", "temperature", "top_p", "top_k"))

    assert sampler() == (False, None, None, None)
    generation.write_text('{"eos_token_id": 2024, "temperature": 0.7}')
    assert sampler() == (None, 0.7, None, None)
    generation.write_text('{"eos_token_id": 2024, "repetition_penalty": 1.1}')
    assert sampler() == (None, 1.0, 0.95, 20)
    assert sampling_defaults(inspect(path))["repetition_penalty"] == 1.1
    generation.unlink()
    assert sampler() == (None, 1.0, 0.95, 20)
    generation.write_text('{"do_sample": false}')
    (path / "mtplx_runtime.json").write_text('{"recommended_sampler": {"temperature": 0.4}}')
    assert sampler() == (True, 0.4, None, None)


def test_drafts_are_drawn_as_the_pack_recommends() -> None:
    pack = DraftSampler(temperature=0.7, top_k=10)
    drawn = resolve_draft_sampling(Sampling(1.0, top_k=20, top_p=0.95), pack)
    assert drawn == Sampling(0.7, top_k=10, top_p=0.95)
    for sampling, told in (
        (Sampling(), pack),  # greedy tokens want greedy drafts
        (Sampling(1.0, top_k=20), DraftSampler(temperature=0)),
        (Sampling(1.0, top_k=20), None),
    ):
        assert resolve_draft_sampling(sampling, told) == sampling


LEVELS = """{%- set effort = reasoning_effort | default('xhigh') %}
{%- if effort not in ['low', 'medium', 'xhigh'] %}
{{- raise_exception('unknown effort') }}{%- endif %}
{%- for message in messages %}{{- message.content }}{%- endfor %}
{{- 'effort ' + effort }}"""


@pytest.mark.parametrize(
    ("name", "asked", "level"),
    [
        ("Qwen3.8-27B", None, "medium"),
        ("Qwen3.8-27B", "high", "xhigh"),
        ("Qwen3.8-27B", "low", "low"),
        ("Ternary-Bonsai-2-27B", "low", "medium"),  # the template is Qwen's, the training is not
        ("Qwen3.5-9B", None, "xhigh"),  # the template's own
    ],
)
def test_effort(tmp_path: Path, name: str, asked: str | None, level: str) -> None:
    path = copy_demo(tmp_path / name)
    (path / "chat_template.jinja").write_text(LEVELS)
    tokenizer = ChatTokenizer(path)
    request = Request("m", path, [{"role": "user", "content": "x"}], reasoning_effort=asked)
    request, notice = with_effort(request, tokenizer, family_at(path))
    assert notice is None
    assert tokenizer.render(request.messages, request.template_args).endswith(f"effort {level}")


def test_no_effort_without_thinking_or_levels(tmp_path: Path) -> None:
    path = copy_demo(tmp_path / "Qwen3.8-27B")
    tokenizer = ChatTokenizer(path)
    request = Request("m", path, [{"role": "user", "content": "x"}])
    assert with_effort(request, tokenizer, families.QWEN3_8) == (request, None)
    (path / "chat_template.jinja").write_text(LEVELS)
    off = Request("m", path, request.messages, template_args={"enable_thinking": False})
    assert with_effort(off, ChatTokenizer(path), families.QWEN3_8) == (off, None)
