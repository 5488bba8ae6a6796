"""What a pack says about running it: ``mtplx_runtime.json``, and its like in config.json."""

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from ..errors import ModelFolderError
from .architecture import WIDTHS

# Packs name the oldest MTPLX that reads them; formats up to this one are known here.
KNOWN_UP_TO = (2, 12, 2)

GROUPS = (32, 64, 128)  # weights that share a scale

# What the head is fed, and how it counts positions. No other way is implemented.
HEAD_CONTRACT = {
    "base_hidden_variant": "post_norm",
    "hidden_variant": "post_norm",
    "concat_order": "embedding_hidden",
    "mtp_position_mode": "cache",
}


class DraftSampler(BaseModel):
    temperature: float | None = Field(None, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=0)


class Packing(BaseModel):
    """A quantization."""

    bits: int
    group_size: int = 64
    mode: str = "affine"

    def nbytes(self, weights: int) -> int:
        return weights * self.bits // 8 + weights // self.group_size * 4


class Contract(BaseModel):
    """The parts that matter here; all may be missing."""

    min_engine_version: str | None = None
    mtp_depth_default: int | None = Field(None, ge=0)
    recommended_mtp_depth: int | None = Field(None, ge=0)
    mtp_depth_max: int | None = Field(None, ge=0)  # a ceiling, never a recommendation
    recommended_generation_mode: str | None = None
    recommended_draft_sampler: DraftSampler | None = None
    recommended_draft_lm_head: Packing | None = None
    mtp_contract: dict[str, Any] = {}

    @property
    def depth(self) -> int | None:
        """The depth the pack asks for, where it asks for one."""
        if self.recommended_generation_mode == "ar":
            return 0
        told = (self.mtp_depth_default, self.recommended_mtp_depth)
        depth = next((d for d in told if d is not None), None)
        if depth is None or self.mtp_depth_max is None:
            return depth
        return min(depth, self.mtp_depth_max)

    @property
    def draft_lm_head(self) -> Packing | None:
        """How the copy of lm_head that drafts are read from is to be packed, where it is to be
        made: it costs memory, and spares a draft most of the bytes it reads. A form that is not
        known means none."""
        form = self.recommended_draft_lm_head
        known = form and form.mode == "affine" and form.bits in WIDTHS and form.group_size in GROUPS
        return form if known else None

    @property
    def unknown_head(self) -> str | None:
        """How the head wants to be run, where that is not known here."""
        for name, value in HEAD_CONTRACT.items():
            if self.mtp_contract.get(name, value) != value:
                return f"{name} {self.mtp_contract[name]!r}"
        return None


def read_contract(path: Path, runtime: dict[str, Any], config: dict[str, Any]) -> Contract:
    """Raises ModelFolderError for a pack that needs a newer reader, or cannot be read."""
    told = {name: value for name, value in runtime.items() if value is not None}
    own, added = told.get("mtp_contract", {}), config.get("mtplx_mtp_contract")
    if isinstance(own, dict) and isinstance(added, dict):
        told["mtp_contract"] = {**own, **added}
    try:
        contract = Contract.model_validate(told)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise ModelFolderError(
            f"{path / 'mtplx_runtime.json'}: {name}: {first['msg'].lower()}."
        ) from None
    needed = contract.min_engine_version
    if needed is not None and _version(needed) > KNOWN_UP_TO:
        raise ModelFolderError(
            f"{path} requires MTPLX {needed}; this version of llm-mtplx "
            f"reads packs up to {'.'.join(map(str, KNOWN_UP_TO))}. Update llm-mtplx."
        )
    return contract


def _version(text: str) -> tuple[int, ...]:
    """Leading numbers; what cannot be read is newer than all that is known."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    return tuple(map(int, found[1].split("."))) if found else (10**6,)
