"""What models of one family have in common, and which family a folder belongs to.

A config.json says ``qwen3_5`` for 3.5, 3.6 and 3.8 alike, so names have to tell them apart: first
those a pack's own record gives, then the folder's real name, then the name it was called by.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import jsonfile
from . import known, places


@dataclass(frozen=True)
class Family:
    name: str
    temperature: float = 0.6
    top_p: float = 0.95
    top_k: int = 20
    efforts: tuple[str, ...] = ()  # levels of reasoning it was trained for; empty: as templates say
    default_effort: str | None = None
    keeps_reasoning: bool = False  # in the history, where its template leaves that open
    depth: int = 3  # drafts a round

    @property
    def sampling(self) -> dict[str, float]:
        return {"temperature": self.temperature, "top_p": self.top_p, "top_k": self.top_k}


QWEN3_5 = Family("qwen3_5")
QWEN3_6 = Family("qwen3_6")
QWEN3_8 = Family(
    "qwen3_8",
    temperature=1.0,
    efforts=("low", "medium", "xhigh"),
    default_effort="medium",
    keeps_reasoning=True,
)
BONSAI_2 = Family(
    "bonsai_2",
    temperature=1.0,
    efforts=("medium", "xhigh"),
    default_effort="medium",
    keeps_reasoning=True,
    depth=1,
)
FLASH_NEXT = Family(
    "flash_next",
    temperature=1.0,
    efforts=("low", "medium", "xhigh"),
    default_effort="xhigh",
    keeps_reasoning=True,
)
QWEN3_NEXT = Family("qwen3_next")

# Architectures of which one family alone is made.
BY_TYPE = {
    "prism_hadamard_qwen35": BONSAI_2,
    "qwen4_exp": FLASH_NEXT,
    "qwen3_next": QWEN3_NEXT,
}

# The first that matches decides. A digit after "3." is a version unless it counts parameters or
# bits: Qwen3-8B is a model of 8 billion parameters, Bonsai-27B not a second Bonsai.
BY_NAME = tuple(
    (re.compile(pattern, re.IGNORECASE), family)
    for pattern, family in (
        (r"flash[._-]?next|qwen[._-]?4(?![\db])", FLASH_NEXT),
        (r"bonsai[._-]?2(?![\db])", BONSAI_2),
        (r"mimo.*qwen", QWEN3_5),
        (r"qwen[._-]?3[._-]?next", QWEN3_NEXT),
        (r"qwen[._-]?3[._-]?8(?![\db])", QWEN3_8),
        (r"qwen[._-]?3[._-]?6(?![\db])", QWEN3_6),
        (r"qwen[._-]?3[._-]?5(?![\db])", QWEN3_5),
    )
)


def by_name(name: str) -> Family | None:
    return next((family for marker, family in BY_NAME if marker.search(name)), None)


def family_at(path: Path) -> Family:
    """The family of the model in this folder."""
    config = jsonfile.read_or_empty(path / "config.json")
    family = BY_TYPE.get(str(config.get("model_type")))
    if family is not None:
        return family
    for name in (*_provenance(runtime_at(path)), *places.names_of(path)):
        family = by_name(name)
        if family is not None:
            return family
    return QWEN3_6


def runtime_at(path: Path) -> dict[str, Any]:
    """A pack's own record of how to run it; empty where there is none."""
    return jsonfile.read_or_empty(path / "mtplx_runtime.json")


def depth_at(path: Path) -> int:
    """Drafts a round where the pack's own files ask for none: the catalog's, else the family's."""
    found = known.of_names(places.names_of(path))
    depth = found[0].depth if found else family_at(path).depth
    ceiling = runtime_at(path).get("mtp_depth_max")
    return min(depth, ceiling) if isinstance(ceiling, int) else depth


def _provenance(runtime: Mapping[str, Any]) -> Iterator[str]:
    """Names in a pack's record, the pack's own before those of what it was made from."""
    forge = runtime.get("forge_provenance")
    source = forge.get("source_repo") if isinstance(forge, dict) else None
    named = [runtime.get(key) for key in ("public_model_id", "served_model_id", "base_trunk")]
    for name in (*named, source):
        if isinstance(name, str):
            yield name.rsplit("/", 1)[-1]
