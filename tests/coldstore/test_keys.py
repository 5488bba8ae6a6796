"""Keys follow from fingerprint and ids, from nothing else, and no two lines share one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_mtplx.coldstore.keys import BLOCK, Chain, pack_ids, parse_key, unpack_ids

from .lines import tokens


def test_a_prefix_has_the_same_keys_in_every_line() -> None:
    ids = tokens(3 * BLOCK)
    one, other = Chain("m", ids), Chain("m", [*ids[: 2 * BLOCK], 5, 6])
    assert [one.key(i) for i in range(3)] == [other.key(i) for i in range(3)]
    assert one.checkpoint(BLOCK + 7) == other.checkpoint(BLOCK + 7)


@pytest.mark.parametrize("changed", [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK - 1])
def test_one_changed_id_changes_every_key_from_there_on(changed: int) -> None:
    ids = tokens(3 * BLOCK)
    edited = list(ids)
    edited[changed] += 1
    one, other = Chain("m", ids), Chain("m", edited)
    same = [one.key(i) == other.key(i) for i in range(4)]
    assert same == [i <= changed // BLOCK for i in range(4)]
    assert one.checkpoint(changed + 1) != other.checkpoint(changed + 1)


def test_the_fingerprint_is_part_of_every_key() -> None:
    one, other = Chain("m", tokens(BLOCK)), Chain("n", tokens(BLOCK))
    assert one.key(0) != other.key(0)
    assert one.key(1) != other.key(1)
    assert one.checkpoint(3) != other.checkpoint(3)


def test_blocks_and_checkpoints_of_the_same_ids_differ() -> None:
    chain = Chain("m", tokens(BLOCK))
    assert len({chain.key(0), chain.key(1), chain.checkpoint(0), chain.checkpoint(BLOCK)}) == 4


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_ids_survive_packing(ids: list[int]) -> None:
    assert unpack_ids(pack_ids(ids)) == ids
    assert len(pack_ids(ids)) == 4 * len(ids)


@pytest.mark.parametrize("text", ["", "ab" * 31, "ab" * 33, "AB" * 32, "gg" * 32, "../" + "a" * 61])
def test_only_full_lower_case_hex_is_a_name(text: str) -> None:
    assert parse_key(text) is None
    assert parse_key("ab" * 32) == b"\xab" * 32
