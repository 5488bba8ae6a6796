"""The header says everything about a file, and a reader believes nothing it cannot check."""

import os
from pathlib import Path

import pytest
import xxhash

from llm_mtplx.coldstore import ColdStore, format
from llm_mtplx.coldstore.format import PREAMBLE, Header, SectionInfo, decode_head, encode_head
from llm_mtplx.coldstore.index.lookup import wanted_block
from llm_mtplx.coldstore.keys import BLOCK, Chain
from llm_mtplx.coldstore.reader import check_wanted, file_verifies
from llm_mtplx.coldstore.reasons import BadFile

from .lines import tokens

CHAIN = Chain("m", tokens(2 * BLOCK))


def header(**changes: object) -> Header:
    fields: dict[str, object] = {
        "kind": "block",
        "key": CHAIN.key(2).hex(),
        "parent": CHAIN.key(1).hex(),
        "start": BLOCK,
        "end": 2 * BLOCK,
        "ids": tokens(2 * BLOCK)[BLOCK:],
        "sections": [SectionInfo(name="k", dtype="bfloat16", shape=[BLOCK, 2])],
    }
    return Header.model_validate(fields | changes)


BODY = os.urandom(BLOCK * 4)


def test_the_body_begins_aligned_and_the_header_comes_back() -> None:
    data = encode_head(header(), [BODY[:5], BODY[5:]])
    head = decode_head(data, len(data) + len(BODY))
    assert head.header == header()
    assert head.body_at == len(data)
    assert len(data) % 64 == 0


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    whole = bytearray(encode_head(header(), [BODY]) + BODY)
    path = tmp_path / "file"
    wanted = wanted_block(CHAIN, 1)

    def verifies() -> bool:
        path.write_bytes(whole)
        with path.open("rb") as file:
            return file_verifies(file.fileno(), wanted)

    assert verifies()
    for at in [*range(PREAMBLE.size), *range(PREAMBLE.size, len(whole), 37)]:
        whole[at] ^= 1 << at % 8
        assert not verifies(), at
        whole[at] ^= 1 << at % 8


@pytest.mark.parametrize(
    "changes",
    [
        {"key": CHAIN.key(1).hex()},
        {"parent": CHAIN.key(0).hex()},
        {"ids": tokens(BLOCK)},
        {"ids": tokens(2 * BLOCK)[BLOCK:-1]},
        {"start": BLOCK + 1},
        {"kind": "checkpoint"},
        {"sections": [SectionInfo(name="k", dtype="float128", shape=[1])]},
    ],
)
def test_a_header_that_contradicts_itself_is_refused(changes: dict[str, object]) -> None:
    text = header(**changes).model_dump_json().encode()
    front = PREAMBLE.pack(format.MAGIC, 1, len(text), 0, xxhash.xxh3_64_intdigest(text), b"")
    with pytest.raises(BadFile):
        decode_head(front + text, len(front + text))


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "checkpoint"},
        {"key": CHAIN.key(1).hex()},
        {"parent": CHAIN.key(0).hex()},
        {"start": 0},
        {"end": 3 * BLOCK},
        {"ids": tokens(BLOCK)},
    ],
)
def test_a_header_that_says_something_else_than_asked(changes: dict[str, object]) -> None:
    """Even one whose key is right: after a lookup the ids themselves are compared."""
    check_wanted(header(), wanted_block(CHAIN, 1))
    with pytest.raises(BadFile):
        check_wanted(header(**changes), wanted_block(CHAIN, 1))


def test_another_format_is_refused_by_number() -> None:
    data = bytearray(encode_head(header(), [BODY]))
    data[8] = 2
    with pytest.raises(BadFile, match="its format is 2, not 1"):
        decode_head(bytes(data), len(data) + len(BODY))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "x",
        "[" * 4096,
        '{"store": "llm-mtplx", "format": 1e999}',
        '{"store": "llm-mtplx", "format": NaN}',
        '{"store": "llm-mtplx", "format": "1"}',
        '{"store": "llm-mtplx", "format": true}',
        '{"store": "llm-mtplx", "format": 1.5}',
        '{"store": "llm-mtplx", "format": null}',
        '{"store": ["llm-mtplx"], "format": 1}',
        '["store"]',
    ],
)
def test_a_marker_that_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "sessions-v1").mkdir()
    (tmp_path / "sessions-v1" / "STORE").write_text(content)
    store = ColdStore(tmp_path)
    assert store.lookup("model", [1, 2, 3]).reason == "not_a_store"
    assert store.report().reason == "not_a_store"
    assert store.close(10)
