"""What ``llm mtplx tune`` has recorded of a model on this machine.

A record holds for one set of model files, machine, backend, BLAS and versions; a change of any
of them makes it another key, so no stale record is ever used.
"""

import hashlib
import json
import os
import platform
from typing import Annotated

from pydantic import BaseModel, Field, PositiveFloat, ValidationError

from .. import jsonfile
from ..architectures.runtime import facts
from ..catalog.folder import ModelFolder
from ..settings import tuning_path

DEEPEST = 4  # that is measured

Depth = Annotated[int, Field(ge=0, le=DEEPEST)]

Rows = Annotated[int, Field(ge=2, le=64)]


class Record(BaseModel):
    """What ``measure.depths.save`` writes."""

    depth: Depth  # taken where there are no costs
    costs: Annotated[dict[Depth, PositiveFloat], Field(min_length=1)] | None = None
    # Of verifies of so many rows, in plain rounds.
    rows: Annotated[dict[Rows, PositiveFloat], Field(min_length=1)] | None = None


def recorded(folder: ModelFolder) -> Record | None:
    record = jsonfile.read_or_empty(tuning_path()).get(record_key(folder))
    try:
        return Record.model_validate(record)
    except ValidationError:
        return None


def record_key(folder: ModelFolder) -> str:
    head = [file for file, _, _ in folder.head.tensors.values()] if folder.head else []
    files = sorted({*folder.trunk_headers, *head, folder.path / "config.json"})
    told = facts()
    identity = {
        "files": [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files],
        "machine": [platform.machine(), platform.processor(), os.cpu_count(), told["device"]],
        "threads": os.environ.get("OPENBLAS_NUM_THREADS"),
        **{name: told[name] for name in ("backend", "blas", "versions", "memory_bytes")},
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
