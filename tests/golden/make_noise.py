"""Record the noise of some seeds, positions and tokens, computed by Python's own numbers.

Run: ``uv run python -m tests.golden.make_noise``.
"""

import math
import struct
from pathlib import Path

import numpy as np

OUT = Path(__file__).parent / "noise.npz"
SEEDS = (0, 1, 7, 2**31, 2**32 - 1, 2**53 - 1, 2**64 - 1, 2**64, 10**40)
POSITIONS = (0, 1, 2, 1000, 262_143)
TOKENS = (*range(24), 127, 128, 32_767, 151_644, 248_319, *range(100_000, 100_040))


def main() -> None:
    bits = [[[mixed(*key(s, p), t) for t in TOKENS] for p in POSITIONS] for s in SEEDS]
    noise = [[[gumbel(b) for b in row] for row in rows] for rows in bits]
    np.savez_compressed(
        OUT,
        seeds=[str(seed) for seed in SEEDS],
        positions=POSITIONS,
        tokens=TOKENS,
        bits=np.array(bits, np.uint32),
        noise=np.array(noise, np.float32),
    )


def key(seed: int, position: int) -> tuple[int, int]:
    state = splitmix(0x9E3779B97F4A7C15 ^ seed % 2**64)
    while seed := seed >> 64:
        state = splitmix(state ^ seed % 2**64)
    made = splitmix((state + (position + 1) * 0x9E3779B97F4A7C15) % 2**64)
    return made >> 32, made % 2**32


def splitmix(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def mixed(upper: int, lower: int, token: int) -> int:
    return lowbias((lowbias(token ^ upper) + lower) % 2**32)


def lowbias(x: int) -> int:
    x = (x ^ x >> 16) * 0x7FEB352D % 2**32
    x = (x ^ x >> 15) * 0x846CA68B % 2**32
    return x ^ x >> 16


def gumbel(bits: int) -> float:
    """Between two steps of which 256 make a power of two, on a straight line."""
    distance = single(single(bits % 2**31) + 0.5)
    (found,) = struct.unpack("<I", struct.pack("<f", distance))
    step = found >> 15
    ends = [exact(bits >> 31, of_bits(at << 15) / 2**32) for at in (step, step + 1)]
    slope = single((ends[1] - ends[0]) / 2**15)
    return single(single(ends[0]) + single(slope * (found % 2**15)))


def exact(half: int, distance: float) -> float:
    return -math.log(-math.log1p(-distance) if half else -math.log(distance))


def of_bits(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def single(x: float) -> float:
    return float(np.float32(x))


if __name__ == "__main__":
    main()
