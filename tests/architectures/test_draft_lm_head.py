"""A copy of lm_head in fewer bits, for drafts only: other drafts, the same tokens."""

import json
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from llm_mtplx.architectures import draft_lm_head as module
from llm_mtplx.architectures.draft_lm_head import draft_lm_head
from llm_mtplx.catalog import footprint
from llm_mtplx.catalog.contract import Packing
from llm_mtplx.catalog.folder import inspect
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.load import LoadedModel, load
from llm_mtplx.speculative.decoder import Decoder
from llm_mtplx.speculative.distributions import Sampling

from ..folders import copy_demo
from ..forms import rounds
from ..speculative import reference
from ..tiny import random_trunk_and_head

PROMPT = [5, 9, 300, 41, 7, 1200, 88, 5, 9, 300, 17, 2]


def quiet(line: str) -> None:
    raise AssertionError(line)


def with_record(folder: Path, **told: object) -> Path:
    (folder / "mtplx_runtime.json").write_text(json.dumps(told))
    return folder


@pytest.fixture
def metal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU unpacks slower than it reads, so there no copy is made."""
    monkeypatch.setattr("llm_mtplx.engine.load.backend", lambda: "metal")


def unpacked(copy: nn.Module) -> mx.array:
    return mx.dequantize(copy.weight, copy.scales, copy.biases, copy.group_size, copy.bits)


def test_drafts_are_read_from_it_and_tokens_are_not(tmp_path: Path, metal: None) -> None:
    told = {"bits": 2, "group_size": 64, "mode": "affine"}
    folder = with_record(copy_demo(tmp_path / "model"), recommended_draft_lm_head=told)
    plain, packed = load(MODEL_DIR, quiet), load(folder, quiet)
    assert plain.head is not None and plain.head.lm_head is None
    assert packed.head is not None and packed.head.lm_head is not None

    hidden = mx.random.normal((1, 1, packed.trunk.args.hidden_size)).astype(packed.trunk.dtype)
    drafted = packed.head.logits(hidden, packed.trunk)
    own = packed.trunk.logits(hidden)
    assert mx.array_equal(own, plain.trunk.logits(hidden))
    rounded = hidden @ unpacked(packed.head.lm_head).T
    assert mx.abs(drafted - rounded).mean() < 0.1 * mx.abs(own - rounded).mean()

    (ids, accepted), (same, others) = (rounds(model, PROMPT, 48) for model in (plain, packed))
    assert same == ids
    assert others != accepted

    vocabulary, size = packed.trunk.args.vocab_size, packed.trunk.args.hidden_size
    more = footprint.of_folder(inspect(folder)).weights
    more -= footprint.of_folder(inspect(MODEL_DIR)).weights
    assert more == vocabulary * size // 4 + vocabulary * size // 64 * 4
    assert more == sum(a.nbytes for a in packed.head.lm_head.parameters().values())


def test_drafts_are_read_from_the_copy_and_change_no_token() -> None:
    trunk, head = random_trunk_and_head()
    copy = draft_lm_head(trunk, Packing(bits=2, group_size=32))
    assert copy is not None
    own, _ = sampled(trunk, head, 2)
    head.lm_head = copy
    rough, drafted = sampled(trunk, head, 2)
    assert rough == own == sampled(trunk, head, 0)[0]
    assert len(drafted) > 10
    # Each is the head's choice by the copy, with the noise of its place.
    for hidden, position, draft in drafted:
        logits = np.array(copy(hidden)[0].astype(mx.float32))
        want, gap = reference.chosen(logits, SAMPLING, reference.keys(5, position))
        assert gap[0] < 1e-5 or draft == want[0]


SAMPLING = Sampling(1.0, top_k=8)


def sampled(trunk, head, depth: int) -> tuple[list[int], list[tuple[mx.array, int, int]]]:
    """An answer, and the head's hidden row, place and token of each draft."""
    rows: list[mx.array] = []
    made: list[tuple[mx.array, int, int]] = []

    class Noting(Decoder):
        def _draft(self, primary, depth, copied=()):
            rows.clear()
            drafts = yield from super()._draft(primary, depth, copied)
            places = range(self._next, self._next + len(drafts))
            made.extend(zip(rows, places, [draft.item() for draft in drafts], strict=True))
            return drafts

    class Keeping:
        def __getattr__(self, name):
            return getattr(head, name)

        def __call__(self, *args):
            return head(*args)

        def logits(self, hidden, trunk):
            rows.append(hidden)
            return head.logits(hidden, trunk)

    decoder = Noting(trunk, Keeping(), SAMPLING, 5)
    list(decoder.prefill(PROMPT[:2]))
    ids = [decoder.first()]
    while len(ids) < 24:
        ids += decoder.round(depth, 24 - len(ids), lambda token: False).tokens
    return ids, made


@pytest.mark.parametrize(
    "told",
    [{"bits": 7}, {"bits": 4, "group_size": 48}, {"bits": 4, "group_size": 16, "mode": "nvfp4"}],
)
def test_a_form_that_is_not_known_means_none(
    tmp_path: Path, metal: None, told: dict[str, object]
) -> None:
    folder = with_record(copy_demo(tmp_path / "model"), recommended_draft_lm_head=told)
    assert inspect(folder).contract.draft_lm_head is None
    assert load_head_of(folder) is None


def load_head_of(folder: Path) -> nn.Module | None:
    model: LoadedModel = load(folder, quiet)
    assert model.head is not None
    return model.head.lm_head


def test_none_on_a_cpu(tmp_path: Path) -> None:
    folder = with_record(copy_demo(tmp_path / "model"), recommended_draft_lm_head={"bits": 4})
    assert load_head_of(folder) is None


@pytest.mark.parametrize("tied", [True, False])
def test_a_packed_lm_head_is_packed_anew_in_fewer_bits(
    monkeypatch: pytest.MonkeyPatch, tied: bool
) -> None:
    """In parts, which give what the whole would."""
    trunk, _ = random_trunk_and_head(tie_word_embeddings=tied)
    nn.quantize(trunk.model, group_size=32, bits=8)
    whole = draft_lm_head(trunk, Packing(bits=4, group_size=64))
    assert whole is not None
    source = unpacked(trunk.lm_head)
    wanted = mx.quantize(source, group_size=64, bits=4)
    assert all(map(mx.array_equal, (whole.weight, whole.scales, whole.biases), wanted))
    monkeypatch.setattr(module, "ROWS", 24)
    parts = draft_lm_head(trunk, Packing(bits=4, group_size=64))
    assert parts is not None
    assert mx.array_equal(parts.weight, whole.weight)
    assert draft_lm_head(trunk, Packing(bits=8)) is None, "the trunk's own is as small"


def test_none_where_it_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    trunk, _ = random_trunk_and_head()
    assert draft_lm_head(trunk, Packing(bits=4, group_size=128)) is None, "64 columns"

    def out_of_memory(weight: mx.array, **form: int) -> tuple[mx.array, ...]:
        return tuple(mx.zeros_like(part) for part in quantize(weight, **form))

    quantize = mx.quantize
    monkeypatch.setattr(mx, "quantize", out_of_memory)
    assert draft_lm_head(trunk, Packing(bits=4)) is None
