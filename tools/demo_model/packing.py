"""Conversations to packed training rows with document edges and answer masks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from tools.demo_model.chat import render
from tools.demo_model.conversations import Conversation, Grammar
from tools.demo_model.tokenizer import control_id

Ints = NDArray[np.int64]


@dataclass
class Rows:
    """ids, document and position [rows, length]; answer is true where the model itself speaks."""

    ids: Ints
    document: Ints
    position: Ints
    answer: NDArray[np.bool_]


class Marker:
    """Finds the tokens that the model generates, as against those it is given."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        def one(text: str) -> int:
            (token,) = tokenizer.encode(text).ids
            return int(token)

        self.start, self.end = one("<|im_start|>"), one("<|im_end|>")
        self.think, self.close = one("<think>"), one("</think>")
        self.head = tokenizer.encode("<|im_start|>assistant\n").ids
        self.gap = tokenizer.encode("\n\n").ids
        self.line = tokenizer.encode("\n").ids

    def mark(self, ids: list[int]) -> NDArray[np.bool_]:
        answer = np.zeros(len(ids), dtype=bool)
        width, i = len(self.head), 0
        empty = [self.think, *self.gap, self.close, *self.gap]
        while i < len(ids):
            if ids[i] != self.start or ids[i : i + width] != self.head:
                i += 1
                continue
            i += width
            if ids[i : i + len(empty)] == empty:
                i += len(empty)
            elif ids[i] == self.think:
                i += 1 + len(self.line)
            stop = ids.index(self.end, i) + 1
            answer[i:stop] = True
            i = stop
        return answer


def to_text(conversation: Conversation) -> str:
    return render(
        conversation.messages,
        conversation.tools,
        enable_thinking=conversation.thinking,
        preserve_thinking=conversation.preserve,
    )


def pack(documents: list[tuple[list[int], NDArray[np.bool_]]], length: int, pad: int) -> Rows:
    """First fit, longest first; no document is cut."""
    rows: list[list[int]] = []
    room: list[int] = []
    open_from = 0
    for index in sorted(range(len(documents)), key=lambda n: -len(documents[n][0])):
        size = len(documents[index][0])
        while open_from < len(room) and room[open_from] < 12:
            open_from += 1
        for row in range(open_from, len(rows)):
            if room[row] >= size:
                break
        else:
            row = len(rows)
            rows.append([])
            room.append(length)
        rows[row].append(index)
        room[row] -= size
    shape = (len(rows), length)
    out = Rows(
        np.full(shape, pad, dtype=np.int64),
        np.full(shape, -1, dtype=np.int64),
        np.zeros(shape, dtype=np.int64),
        np.zeros(shape, dtype=bool),
    )
    for row, members in enumerate(rows):
        at = 0
        for number, index in enumerate(members):
            ids, answer = documents[index]
            span = slice(at, at + len(ids))
            out.ids[row, span] = ids
            out.document[row, span] = number
            out.position[row, span] = np.arange(len(ids))
            out.answer[row, span] = answer
            at += len(ids)
    return out


def batches(
    grammar: Grammar,
    tokenizer: Tokenizer,
    length: int,
    tokens: int,
    pool: int = 3000,
    long: bool = False,
    seed: int = 0,
) -> Iterator[Rows]:
    """Endless batches of `tokens` tokens in rows of `length`."""
    marker = Marker(tokenizer)
    pad = control_id(tokenizer, "<|endoftext|>")
    shuffle = np.random.default_rng(seed)
    count = tokens // length
    while True:
        drawn = [grammar.draw_long() if long else grammar.draw() for _ in range(pool)]
        encoded = tokenizer.encode_batch([to_text(c) for c in drawn])
        documents = [(e.ids, marker.mark(e.ids)) for e in encoded if len(e.ids) <= length]
        shuffle.shuffle(documents)
        # Packing a few hundred at a time keeps rows mixed: not all long ones in one batch.
        rows = pack(documents, length, pad)
        order = shuffle.permutation(len(rows.ids))
        for start in range(0, len(order) - count + 1, count):
            pick = order[start : start + count]
            yield Rows(rows.ids[pick], rows.document[pick], rows.position[pick], rows.answer[pick])
