"""A file with the right key and right checksums, and another layout, is refused before anything
is allocated, dropped, and written anew by the next save."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from llm_mtplx.architectures.mtp_head import MTPHead
from llm_mtplx.architectures.state import State
from llm_mtplx.architectures.trunk import Trunk
from llm_mtplx.coldstore import ColdStore
from llm_mtplx.coldstore.format import Header, SectionInfo, decode_head, encode_head
from llm_mtplx.coldstore.keys import Chain
from llm_mtplx.sessions import persist as cold
from llm_mtplx.sessions.persist import read_line, save_line
from llm_mtplx.sessions.session import Checkpoint
from llm_mtplx.speculative.decoder import Decoder
from llm_mtplx.speculative.distributions import Sampling

from ..speculative.states import assert_equal, named_arrays
from ..tiny import random_trunk_and_head

IDS = np.random.default_rng(5).integers(0, 64, 320).tolist()
POSITION = 300
TIMEOUT_S = 60.0

Sections = list[SectionInfo]
Change = Callable[[Sections, bytes], tuple[Sections, bytes]]


@pytest.fixture(scope="module")
def tiny() -> tuple[Trunk, MTPHead]:
    return random_trunk_and_head()


@pytest.fixture(scope="module")
def decoder(tiny: tuple[Trunk, MTPHead]) -> Decoder:
    decoder = Decoder(*tiny, Sampling())
    list(decoder.prefill(IDS[:POSITION]))
    return decoder


def without_the_first(sections: Sections, body: bytes) -> tuple[Sections, bytes]:
    return sections[1:], body[sections[0].nbytes :]


def without_the_last(sections: Sections, body: bytes) -> tuple[Sections, bytes]:
    return sections[:-1], body[: -sections[-1].nbytes]


def empty(sections: Sections, body: bytes) -> tuple[Sections, bytes]:
    return [], b""


def reshaped(sections: Sections, body: bytes) -> tuple[Sections, bytes]:
    heads, rows, size = sections[0].shape
    return [changed(sections[0], shape=[heads * 2, rows, size // 2]), *sections[1:]], body


def of_fewer_rows(sections: Sections, body: bytes) -> tuple[Sections, bytes]:
    heads, rows, size = sections[0].shape
    short = changed(sections[0], shape=[heads, rows - 1, size])
    return [short, *sections[1:]], body[sections[0].nbytes - short.nbytes :]


def flattened(sections: Sections, body: bytes) -> tuple[Sections, bytes]:
    heads, rows, size = sections[0].shape
    return [changed(sections[0], shape=[heads * rows * size]), *sections[1:]], body


def of_another_dtype(sections: Sections, body: bytes) -> tuple[Sections, bytes]:
    return [changed(section, dtype="int32") for section in sections], body


def of_half_the_dtype(sections: Sections, body: bytes) -> tuple[Sections, bytes]:
    heads, rows, size = sections[0].shape
    twice = changed(sections[0], dtype="float16", shape=[heads, rows, size * 2])
    return [twice, *sections[1:]], body


def with_one_more(sections: Sections, body: bytes) -> tuple[Sections, bytes]:
    return [
        *sections,
        SectionInfo(name="keys 99", dtype="float32", shape=[1, 1, 1]),
    ], body + b"1234"


def with_one_twice(sections: Sections, body: bytes) -> tuple[Sections, bytes]:
    return [*sections, sections[0]], body + body[: sections[0].nbytes]


def in_another_order(sections: Sections, body: bytes) -> tuple[Sections, bytes]:
    first, second, *rest = sections
    return [
        changed(first, name=second.name),
        changed(second, name=first.name),
        *rest,
    ], body


def with_a_foreign_name(sections: Sections, body: bytes) -> tuple[Sections, bytes]:
    return [changed(sections[0], name="keys ../../x"), *sections[1:]], body


def changed(section: SectionInfo, **fields: object) -> SectionInfo:
    return section.model_copy(update=fields)


CHANGES: list[Change] = [
    without_the_first,
    without_the_last,
    empty,
    reshaped,
    of_fewer_rows,
    flattened,
    of_another_dtype,
    of_half_the_dtype,
    with_one_more,
    with_one_twice,
    in_another_order,
    with_a_foreign_name,
]


def rewrite(path: Path, change: Change) -> None:
    """The same key and ids, right checksums, other sections."""
    data = path.read_bytes()
    head = decode_head(data, len(data))
    sections, body = change(list(head.header.sections), data[head.body_at :])
    header = head.header.model_copy(update={"sections": sections})
    assert header.stored_bytes == len(body)
    path.write_bytes(encode_head(header, [body]) + body)


def saved(cache_dir: Path, decoder: Decoder) -> None:
    store = ColdStore(cache_dir)
    save_line(
        store, Chain("f", decoder.state.ids), decoder.state, Checkpoint.of(decoder.state), "c"
    )
    assert store.flush(TIMEOUT_S)
    assert store.close(TIMEOUT_S)


@pytest.mark.parametrize("pattern", ["*.kv", "*.st"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_another_layout_is_refused_and_healed(
    tiny: tuple[Trunk, MTPHead], decoder: Decoder, tmp_path: Path, pattern: str, change: Change
) -> None:
    saved(tmp_path, decoder)
    (path,) = tmp_path.rglob(pattern)
    before = path.read_bytes()
    rewrite(path, change)
    store = ColdStore(tmp_path)
    read, reason = read_line(store, store.lookup("f", IDS), IDS, State.empty(*tiny))
    assert (read, reason) == (None, "layout_refused")
    assert not path.exists()
    save_line(
        store, Chain("f", decoder.state.ids), decoder.state, Checkpoint.of(decoder.state), "c"
    )
    assert store.flush(TIMEOUT_S)
    assert path.read_bytes() == before
    read, reason = read_line(store, store.lookup("f", IDS), IDS, State.empty(*tiny))
    assert read is not None
    assert_equal(named_arrays(read[0]), named_arrays(decoder.state))
    assert store.close(TIMEOUT_S)


def test_nothing_is_allocated_for_what_a_header_claims(
    tiny: tuple[Trunk, MTPHead], decoder: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 GB of a file with holes, whose size and header agree."""
    saved(tmp_path, decoder)
    (path,) = tmp_path.rglob("*.st")
    data = path.read_bytes()
    head = decode_head(data, len(data))
    claimed = [changed(head.header.sections[0], shape=[1 << 10, 1 << 12, 1 << 12])]
    header = head.header.model_copy(update={"sections": claimed})
    front = encode_head_of(header)
    path.write_bytes(front)
    with path.open("r+b") as file:
        file.truncate(len(front) + header.stored_bytes)
    made: list[object] = []
    monkeypatch.setattr(cold, "hollow", made.append)
    store = ColdStore(tmp_path)
    read, reason = read_line(store, store.lookup("f", IDS), IDS, State.empty(*tiny))
    assert (read, reason, made) == (None, "layout_refused", [])
    assert not path.exists()
    assert store.close(TIMEOUT_S)


def encode_head_of(header: Header) -> bytes:
    """Of a body that is not there; only the header's own checksum is right."""
    return encode_head(header, [])
