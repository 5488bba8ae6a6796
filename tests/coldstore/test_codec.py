"""Packed sections come back bit for bit, whatever they hold and wherever they go."""

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_mtplx.coldstore.codec import pack
from llm_mtplx.coldstore.entries import read_entry
from llm_mtplx.coldstore.format import Header, SectionInfo, encode_head
from llm_mtplx.coldstore.index.lookup import wanted_block
from llm_mtplx.coldstore.index.manifest import BlockRow
from llm_mtplx.coldstore.keys import BLOCK, Chain
from llm_mtplx.coldstore.reader import OpenFile, file_verifies, read_head
from llm_mtplx.coldstore.reasons import BadFile

from .lines import FINGERPRINT, files, kv_sections, opened, restore, rows_of, tokens, write

EVERYTHING_IDLE = -10.0
CHAIN = Chain("m", tokens(BLOCK))


def header_of(*sections: tuple[str, list[int]]) -> Header:
    return Header(
        kind="block",
        key=CHAIN.key(1).hex(),
        parent=CHAIN.key(0).hex(),
        start=0,
        end=BLOCK,
        ids=tokens(BLOCK),
        sections=[
            SectionInfo(name=str(i), dtype=dtype, shape=shape)
            for i, (dtype, shape) in enumerate(sections)
        ],
    )


def write_packed(path: Path, header: Header, body: bytes) -> Header:
    packed = pack(header, memoryview(body))
    assert packed is not None
    head = encode_head(*packed)
    path.write_bytes(b"".join([head, *packed[1]]))
    return packed[0]


def read(path: Path, views: list[memoryview]) -> None:
    with path.open("rb") as file:
        OpenFile(file.fileno(), read_head(file.fileno()), 0).read_into(views)


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(0, 300), min_size=1, max_size=5),
    dtypes=st.lists(st.sampled_from(["bfloat16", "float16", "float32", "uint8"]), min_size=5),
    cuts=st.lists(st.integers(0, 4000), max_size=8),
    noise=st.binary(max_size=2000),
)
def test_any_arrays_into_any_buffers(
    tmp_path_factory: pytest.TempPathFactory,
    counts: list[int],
    dtypes: list[str],
    cuts: list[int],
    noise: bytes,
) -> None:
    """One section is sure to pack, so the others are read past it, packed or not."""
    header = header_of(
        ("bfloat16", [2000]), *((d, [n]) for d, n in zip(dtypes, counts, strict=False))
    )
    body = bytearray(b"\x5a" * header.body_bytes)
    for at, byte in enumerate(noise):
        body[-1 - at * 7 % len(body)] ^= byte
    path = tmp_path_factory.getbasetemp() / "packed"
    written = write_packed(path, header, bytes(body))
    assert written.body_bytes == len(body) > written.stored_bytes
    memory = memoryview(bytearray(len(body)))
    edges = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    read(path, [memory[a:b] for a, b in itertools.pairwise(edges)])
    assert memory == body


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_every_pattern_of_two_bytes(tmp_path: Path, dtype: str) -> None:
    """Infinities, NaNs and their payloads, negative zero: sorted, so that it packs."""
    body = b"".join(bytes([low, high]) for high in range(256) for low in range(256))
    write_packed(tmp_path / "packed", header_of((dtype, [65536])), body)
    memory = bytearray(len(body))
    read(tmp_path / "packed", [memoryview(memory)])
    assert memory == body


def test_rows_lose_a_third_and_noise_stays_raw() -> None:
    rows = b"".join(rows_of(tokens(BLOCK)))
    packed = pack(header_of(("bfloat16", [len(rows) // 2])), memoryview(rows))
    assert packed is not None
    assert packed[0].stored_bytes < 0.68 * len(rows)
    noise = os.urandom(40_000)
    assert pack(header_of(("bfloat16", [20_000])), memoryview(noise)) is None
    assert pack(header_of(("float32", [10_000])), memoryview(bytes(40_000))) is None


def test_a_section_that_would_not_shrink_lies_raw_beside_one_that_does() -> None:
    body = bytes(20_000) + os.urandom(2_000)
    packed = pack(header_of(("float16", [10_000]), ("float16", [1_000])), memoryview(body))
    assert packed is not None
    assert [section.packed is None for section in packed[0].sections] == [False, True]


def test_every_flipped_bit_of_a_packed_file_is_noticed(tmp_path: Path) -> None:
    rows = rows_of(tokens(BLOCK))
    body = b"".join(bytes(b) for s in kv_sections(rows) for b in s.buffers)
    sections = [("bfloat16", list(s.shape)) for s in kv_sections(rows)]
    path = tmp_path / "packed"
    write_packed(path, header_of(*sections), body)
    whole = bytearray(path.read_bytes())
    memory = bytearray(len(body))
    wanted = wanted_block(CHAIN, 0)
    for at in range(0, len(whole), 23):
        whole[at] ^= 1 << at % 8
        path.write_bytes(whole)
        with path.open("rb") as file:
            assert not file_verifies(file.fileno(), wanted), at
        with pytest.raises(BadFile):
            read(path, [memoryview(memory)])
        whole[at] ^= 1 << at % 8
    path.write_bytes(whole)
    read(path, [memoryview(memory)])
    assert memory == body


def test_a_frame_that_claims_any_size_is_a_miss(tmp_path: Path) -> None:
    """Every bit of the frames' first bytes, which say how much room they need."""
    ids = tokens(2 * BLOCK)
    with opened(tmp_path) as store:
        write(store, ids)
        assert store.compact(EVERYTHING_IDLE).files == 2
        chain = Chain(FINGERPRINT, ids)
        (path,) = files(tmp_path, f"{chain.key(2).hex()}.kv")
        whole = bytearray(path.read_bytes())
        with path.open("rb") as file:
            head = read_head(file.fileno())
        frame = head.body_at + head.header.sections[0].nbytes // 2
        row = BlockRow(chain.key(2), chain.key(1), BLOCK, len(whole))
        for bit in range(8 * 14):
            whole[frame + bit // 8] ^= 1 << bit % 8
            path.write_bytes(whole)
            store._manifest.add_found([row], [])  # a miss drops it
            restored, _ = restore(store, ids, needs_checkpoint=False)
            assert (restored.position, restored.reason) == (BLOCK, "corrupt_block"), bit
            whole[frame + bit // 8] ^= 1 << bit % 8


def test_an_entry_that_claims_any_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "entry"
    path.write_bytes(b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 7 + b"\x0f" + bytes(20))
    with path.open("rb") as file, pytest.raises(BadFile):
        read_entry(file.fileno(), bytes(32))
