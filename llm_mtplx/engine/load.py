"""A model folder to a trunk, its MTP head and its tokenizer."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..architectures import chunked
from ..architectures.draft_lm_head import draft_lm_head
from ..architectures.half_precision import widen_linears
from ..architectures.load_head import load_head
from ..architectures.load_trunk import is_quantized, load_trunk
from ..architectures.mtp_head import MTPHead
from ..architectures.runtime import WHEEL_BLAS, backend, blas
from ..architectures.trunk import Trunk
from ..catalog.families import depth_at
from ..catalog.fit import Needs
from ..catalog.folder import ModelFolder, inspect
from ..catalog.footprint import of_folder
from ..chat.tokenizer import ChatTokenizer
from ..speculative.depth import BREAK_EVEN, default_depth, guessed_costs, row_cost
from ..speculative.pace import Pace
from .loader import hold, release


@dataclass(frozen=True)
class LoadedModel:
    folder: ModelFolder
    trunk: Trunk
    head: MTPHead | None
    tokenizer: ChatTokenizer
    eos_ids: frozenset[int]
    context_window: int  # tokens
    depth: int  # where the request leaves it open
    break_even: float  # accepted share of first drafts below which that depth may lose
    key: str  # tells the states of different loaded models apart
    costs: Mapping[int, float] | None = None  # measured: a round at each depth, in plain rounds
    pace: Pace | None = None  # else learned; None: the depth is what it is
    verify_costs: Mapping[int, float] | None = None  # measured: of so many rows, in plain rounds

    @property
    def deepest(self) -> int:
        """The most tokens a round drafts where the request leaves it open."""
        if self.head is None:
            return 0
        if self.costs is not None:
            return max(self.costs)
        return self.depth if self.pace is None else max(self.pace.costs)


def load(
    path: Path, notice: Callable[[str], None], cancelled: Callable[[], bool] = lambda: False
) -> LoadedModel:
    """Load everything a turn needs, once no other process is in the way.

    ``notice`` gets one line if that takes waiting, and one if the model has no head.
    """
    folder = inspect(path)
    return load_inspected(folder, of_folder(folder), notice, cancelled)


def load_inspected(
    folder: ModelFolder,
    needs: Needs,
    notice: Callable[[str], None],
    cancelled: Callable[[], bool] = lambda: False,
) -> LoadedModel:
    """As ``load``, of a folder whose files have been looked at."""
    taken = hold(folder.path, needs, notice, cancelled)
    try:
        return _load(folder, notice)
    except BaseException:
        if taken:
            release(folder.path)
        raise


def _load(folder: ModelFolder, notice: Callable[[str], None]) -> LoadedModel:
    path = folder.path
    tokenizer = ChatTokenizer(path)
    trunk, config = load_trunk(folder)
    trunk.reads_in_chunks = chunked.pays(backend(), blas() == WHEEL_BLAS)
    if trunk.reads_in_chunks and backend() == "cpu":
        widen_linears(trunk.model)
    head = None
    if folder.head is None:
        why = "has no MTP head"
        if folder.declares_head:
            why = "declares an MTP head but has no weights for it"
        notice(f"{path.name} {why}; it decodes without drafts.")
    elif folder.contract.unknown_head:
        notice(
            f"{path.name} needs its MTP head run with {folder.contract.unknown_head}, "
            "which is not supported; it decodes without drafts."
        )
    else:
        head = load_head(folder, folder.head, trunk)
        if trunk.reads_in_chunks and backend() == "cpu":
            widen_linears(head)
        form = folder.contract.draft_lm_head
        if form is not None and backend() != "cpu":  # which unpacks slower than it reads
            head.lm_head = draft_lm_head(trunk, form)
    depth = _depth(folder, trunk)
    return LoadedModel(
        folder,
        trunk,
        head,
        tokenizer,
        _eos_ids(config, tokenizer),
        int(folder.text_config.get("max_position_embeddings", trunk.args.max_position_embeddings)),
        depth,
        BREAK_EVEN[backend()],
        key=uuid.uuid4().hex,
        pace=_pace(folder, depth, head is not None),
    )


def _pace(folder: ModelFolder, depth: int, head: bool) -> Pace | None:
    """None where the model's files want no drafts. ``depth``: 0 where a row costs a round."""
    if folder.contract.depth == 0:
        return None
    guessed = guessed_costs(backend(), depth, folder.contract.mtp_depth_max)
    return Pace(guessed) if head else Pace({0: 1.0}, row_cost(guessed))


def _depth(folder: ModelFolder, trunk: Trunk) -> int:
    dtype = str(trunk.dtype).removeprefix("mlx.core.")
    own_blas = blas() == WHEEL_BLAS
    asked = folder.contract.depth
    if asked is None:
        asked = depth_at(folder.path)
    return default_depth(backend(), dtype, is_quantized(trunk.model), own_blas, asked)


def _eos_ids(config: dict[str, object], tokenizer: ChatTokenizer) -> frozenset[int]:
    """The ids that end an answer: the declared ones (mlx-lm merges both configs) and <|im_end|>."""
    declared = config.get("eos_token_id")
    ids = set(declared) if isinstance(declared, list) else {declared}
    return frozenset(i for i in [*ids, tokenizer.message_end] if isinstance(i, int))
