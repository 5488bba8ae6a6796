"""The model packs that have a name of their own here, and what they need.

Sizes are the bytes to fetch; peaks are their maker's figures for memory in use, not ours.
"""

from collections.abc import Iterable
from typing import NamedTuple

OWNER = "Youssofal"


class Download(NamedTuple):
    repo: str
    size: int  # bytes
    peak_gib: float


class Pack(NamedTuple):
    model_id: str
    depth: int  # drafts a round
    bfloat16: Download
    float16: Download | None = None  # the same for M1 and M2

    def downloads(self) -> tuple[Download, ...]:
        """The one for this machine first."""
        if self.float16 is None:
            return (self.bfloat16,)
        from . import machine

        if machine.prefers_float16(machine.chip()):
            return (self.float16, self.bfloat16)
        return (self.bfloat16, self.float16)


def _download(name: str, size: int, peak_gib: float) -> Download:
    return Download(f"{OWNER}/{name}", size, peak_gib)


PACKS = (
    Pack(
        "qwen3.8-27b-mtp",
        3,
        _download("Qwen3.8-27B-MTPLX-Optimized-Speed", 20_703_486_605, 25.0),
        _download("Qwen3.8-27B-MTPLX-Optimized-Speed-FP16", 20_703_971_173, 25.0),
    ),
    Pack(
        "qwen3.8-27b-mtp-quality",
        3,
        _download("Qwen3.8-27B-MTPLX-Optimized-Quality", 29_972_714_046, 33.0),
        _download("Qwen3.8-27B-MTPLX-Optimized-Quality-FP16", 29_973_199_603, 33.0),
    ),
    Pack(
        "qwen3.8-27b-mtp-bare",
        3,
        _download("Qwen3.8-27B-MTPLX-Bare-Speed", 16_313_700_871, 20.0),
        _download("Qwen3.8-27B-MTPLX-Bare-Speed-FP16", 16_314_184_539, 20.0),
    ),
    # There is no FP16 pack of version 2: its sibling is that of the smaller version 1.
    Pack(
        "qwen3.6-27b-mtp",
        3,
        _download("Qwen3.6-27B-MTPLX-Optimized-Speed-V2", 19_887_455_621, 21.5),
        _download("Qwen3.6-27B-MTPLX-Optimized-Speed-FP16", 16_419_644_386, 17.5),
    ),
    Pack(
        "qwen3.6-27b-mtp-quality",
        3,
        _download("Qwen3.6-27B-MTPLX-Optimized-Quality", 30_016_961_495, 27.62),
        _download("Qwen3.6-27B-MTPLX-Optimized-Quality-FP16", 30_017_528_942, 28.12),
    ),
    Pack(
        "qwen3.6-27b-mtp-bare",
        3,
        _download("Qwen3.6-27B-MTPLX-Optimized-Speed", 16_419_081_848, 17.0),
        _download("Qwen3.6-27B-MTPLX-Optimized-Speed-FP16", 16_419_644_386, 17.5),
    ),
    Pack(
        "qwen3.6-35b-a3b-mtp",
        2,
        _download("Qwen3.6-35B-A3B-MTPLX-Optimized-Speed", 21_014_908_552, 28.0),
        _download("Qwen3.6-35B-A3B-MTPLX-Optimized-Speed-FP16", 21_016_116_514, 28.5),
    ),
    Pack(
        "qwen3.6-35b-a3b-mtp-quality",
        2,
        _download("Qwen3.6-35B-A3B-MTPLX-Optimized-Balance", 29_671_037_163, 32.0),
        _download("Qwen3.6-35B-A3B-MTPLX-Optimized-Balance-FP16", 29_672_249_554, 32.5),
    ),
    Pack(
        "bonsai-2-27b-mtp",
        1,
        _download("Ternary-Bonsai-2-27B-MTPLX-Optimized-Speed", 8_847_919_618, 11.8),
    ),
    Pack(
        "mimo-v2.6-qwen-9b-mtp",
        2,
        _download("MiMo-V2.6-Qwen-9B-MTPLX-Optimized-Speed", 8_695_116_595, 10.0),
    ),
    Pack(
        "qwen3.5-9b-mtp",
        3,
        _download("Qwen3.5-9B-MTPLX-Optimized-Speed", 8_695_118_659, 10.0),
        _download("Qwen3.5-9B-MTPLX-Optimized-Speed-FP16", 7_783_301_181, 10.5),
    ),
    Pack(
        "qwen3.5-4b-mtp",
        3,
        _download("Qwen3.5-4B-MTPLX-Optimized-Speed", 2_567_456_768, 2.86),
    ),
    Pack(
        "qwen3.5-4b-mtp-quality",
        3,
        _download("Qwen3.5-4B-MTPLX-Optimized-Quality", 4_576_426_393, 4.75),
    ),
)

_FLASH_NEXT = "Flash-Next (qwen4_exp) has layers that this version does not support yet"

# Packs of the same makers that cannot be run yet, and why.
NOT_RUNNABLE = {
    f"{OWNER}/Qwen3.8-Flash-Next-MTPLX-Bare-Speed": _FLASH_NEXT,
    f"{OWNER}/Qwen3.8-Flash-Next-MTPLX-Optimized-Speed": _FLASH_NEXT,
    f"{OWNER}/Qwen3.8-Flash-Next-MTPLX-Optimized-Quality": _FLASH_NEXT,
    f"{OWNER}/Gemma4-MTPLX-Optimized-Speed": (
        "Gemma 4 drafts with a second model instead of its own head"
    ),
    "mlx-community/Laguna-S-2.1-oQ4e": "Laguna is not a Qwen model and has no MTP head",
}


def pack(model_id: str) -> Pack | None:
    return next((pack for pack in PACKS if pack.model_id == model_id), None)


def of_repo(repo: str) -> tuple[Pack, Download] | None:
    """The pack and download that a repository is, wherever it was copied to."""
    name = _name(repo)
    for pack in PACKS:
        for download in (pack.bfloat16, pack.float16):
            if download is not None and _name(download.repo) == name:
                return pack, download
    return None


def of_names(names: Iterable[str]) -> tuple[Pack, Download] | None:
    """The first that is one of the catalog's."""
    return next((found for found in map(of_repo, names) if found), None)


def _name(repo: str) -> str:
    return repo.replace("--", "/").rsplit("/", 1)[-1].lower()
