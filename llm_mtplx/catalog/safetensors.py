"""Read the header of a safetensors file without loading a tensor.

Format: 8 bytes little-endian header length, that many bytes of JSON, then the data.
"""

import json
import struct
from dataclasses import dataclass
from pathlib import Path

from ..errors import ModelFolderError

MAX_HEADER_BYTES = 100_000_000  # the limit of the reference implementation


@dataclass(frozen=True)
class TensorInfo:
    dtype: str
    shape: tuple[int, ...]


def read_header(path: Path) -> dict[str, TensorInfo]:
    """Names, dtypes and shapes in ``path``; refuses a file that is not all there."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(size, MAX_HEADER_BYTES):
                raise ValueError("header length out of range")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        tensors = {
            name: TensorInfo(entry["dtype"], tuple(entry["shape"]))
            for name, entry in header.items()
        }
        end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    except FileNotFoundError:
        raise ModelFolderError(f"{path} is missing. Download the model again.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise ModelFolderError(
            f"{path} is not a readable safetensors file ({error}). Download the model again."
        ) from None
    if size != 8 + length + end:
        raise ModelFolderError(
            f"{path} has {size:,} bytes but its header says {8 + length + end:,}: the "
            "download is incomplete. Download the model again."
        )
    return tensors
