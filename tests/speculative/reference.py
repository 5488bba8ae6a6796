"""Shaping, noise and the choice of a token, written down plainly in numpy."""

import math

import mlx.core as mx
import numpy as np

from llm_mtplx.speculative.distributions import Sampling, shape
from llm_mtplx.speculative.noise import Noise


def scores(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    """Of ``logits`` [T, V] in float64: log-probabilities, minus infinity where a filter cuts."""
    rows = np.arange(len(logits))[:, None]
    order = np.argsort(-logits, axis=-1, kind="stable")  # at ties the lower id first
    scaled = logits[rows, order] / sampling.temperature
    if sampling.top_k > 0:
        scaled[:, sampling.top_k :] = -np.inf
    if sampling.top_p < 1:
        probs = softmax(scaled)
        before = np.cumsum(probs, axis=-1) - probs
        before[:, 0] = 0
        scaled[before >= sampling.top_p] = -np.inf
    if sampling.min_p > 0:
        scaled[softmax(scaled) < sampling.min_p * softmax(scaled)[:, :1]] = -np.inf
    with np.errstate(divide="ignore"):
        shaped = np.log(softmax(scaled))
    back = np.empty_like(shaped)
    back[rows, order] = shaped
    return back


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def edges(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    """How close [T] a row comes to the edge of top-p or min-p, as a difference of probability or
    of log-probability: float32 may fall on the other side."""
    near = np.full(len(logits), np.inf)
    if sampling.greedy:
        return near
    scaled = -np.sort(-logits, axis=-1) / sampling.temperature
    if sampling.top_k > 0:
        scaled = scaled[:, : sampling.top_k]
    if sampling.top_p < 1:
        probs = softmax(scaled)
        before = np.cumsum(probs, axis=-1) - probs
        near = np.abs(before - sampling.top_p).min(axis=-1)
    if sampling.min_p > 0:
        least = scaled[:, :1] + math.log(sampling.min_p)
        near = np.minimum(near, np.abs(scaled - least).min(axis=-1))
    return near


def noise(keys: list[tuple[int, int]], ids: np.ndarray) -> np.ndarray:
    """Float32 [T, n] of token ``ids`` [n] or [T, n], by numpy alone."""
    with np.errstate(over="ignore"):
        upper, lower = np.array(keys, np.uint32).T[..., None]
        bits = mixed(mixed(ids.astype(np.uint32) ^ upper) + lower)
    distance = (bits & np.uint32(0x7FFFFFFF)).astype(np.float32) + np.float32(0.5)
    found = distance.view(np.uint32)
    steps = np.arange(np.uint32(126 << 8), np.uint32(158 << 8) + 2, dtype=np.uint32) << 15
    ends = steps.view(np.float32).astype(np.float64) / 2**32
    ends[-1] = ends[-2]
    near = [-np.log(-np.log(ends)), -np.log(-np.log1p(-ends))]
    start = np.array([each[:-1] for each in near]).astype(np.float32)
    slope = np.array([np.diff(each) / 2**15 for each in near]).astype(np.float32)
    half, at = bits >> np.uint32(31), (found >> np.uint32(15)) - np.uint32(126 << 8)
    return start[half, at] + slope[half, at] * (found & np.uint32(2**15 - 1)).astype(np.float32)


def mixed(x: np.ndarray) -> np.ndarray:
    """lowbias32"""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def keys(seed: int, position: int, rows: int = 1) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in np.array(Noise(seed).keys(position, rows))]


def chosen(
    logits: np.ndarray, sampling: Sampling, at: list[tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray]:
    """The token [T] of each row of ``logits`` [T, V], and how far ahead of the second it is."""
    if sampling.greedy:
        total = logits.astype(np.float64)
    else:
        total = scores(logits.astype(np.float64), sampling)
        total = total + noise(at, np.arange(logits.shape[-1]))
    second, first = np.sort(total, axis=-1)[:, -2:].T
    return total.argmax(axis=-1), first - second


def device_probs(logits: mx.array, sampling: Sampling, whole: bool = False) -> np.ndarray:
    """What the device makes of ``logits`` [T, V], as probabilities of all tokens in float64."""
    shaped = shape(logits, sampling, whole)
    probs = softmax(np.array(shaped.scores).astype(np.float64))
    if shaped.ids is None:
        return probs
    out = np.zeros(logits.shape)
    np.put_along_axis(out, np.array(shaped.ids).astype(np.int64), probs, axis=-1)
    return out
