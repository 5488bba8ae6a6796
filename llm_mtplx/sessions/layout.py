"""Which sections a file of the store has, exactly: names, dtypes, shapes and their order."""

from collections.abc import Iterator

import mlx.core as mx

from ..architectures.shapes import Shape, Shapes
from ..coldstore import Header, SectionInfo

DTYPES = {
    mx.float32: "float32",
    mx.float16: "float16",
    mx.bfloat16: "bfloat16",
}


def is_laid_out(header: Header, shapes: Shapes) -> bool:
    """Whether a file has what this model keeps, nothing else, nothing less."""
    named = [(section.name, section.dtype, tuple(section.shape)) for section in header.sections]
    return named == [
        (section.name, section.dtype, tuple(section.shape))
        for section in sections_of(header.kind, header.start, header.end, shapes)
    ]


def sections_of(kind: str, start: int, end: int, shapes: Shapes) -> Iterator[SectionInfo]:
    """The sections of a block, or of a checkpoint whose last whole block ends at ``start``."""
    for index, pair in shapes.attention.items():
        yield from _rows(f" {index}", pair, end - start)
    if shapes.head is not None:
        yield from _rows(" head", shapes.head, end - 1 - max(start - 1, 0))
    if kind == "checkpoint":
        for layer, arrays in enumerate(shapes.recurrent):
            for slot, shape in enumerate(arrays):
                yield _section(f"recurrent {layer}.{slot}", shape.dims, shape)
        yield _section("hidden", shapes.hidden.dims, shapes.hidden)


def _rows(which: str, pair: tuple[Shape, Shape], rows: int) -> Iterator[SectionInfo]:
    if rows <= 0:
        return
    for name, shape in zip(("keys", "values"), pair, strict=True):
        _, heads, _, size = shape.dims
        yield _section(name + which, (heads, rows, size), shape)


def _section(name: str, dims: tuple[int, ...], shape: Shape) -> SectionInfo:
    return SectionInfo(name=name, dtype=DTYPES[shape.dtype], shape=list(dims))
