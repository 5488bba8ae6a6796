"""Compare two decode states array by array."""

import mlx.core as mx
import numpy as np

from llm_mtplx.architectures.mlx_lm_compat import KVCache
from llm_mtplx.architectures.state import State


def arrays_of(state: State) -> dict[str, mx.array]:
    """The rows a state holds, without spare capacity. Waiting rows must have been fed."""
    assert not state.waiting_ids
    arrays = {"hidden": state.hidden}
    for index, cache in enumerate(state.cache):
        if isinstance(cache, KVCache):
            arrays[f"keys {index}"], arrays[f"values {index}"] = cache.keys_and_values()
        else:
            arrays[f"conv {index}"], arrays[f"recurrent {index}"] = cache.cache
    if state.head_cache is not None and state.head_cache.offset:
        arrays["head keys"], arrays["head values"] = state.head_cache.keys_and_values()
    return arrays


def named_arrays(state: State) -> dict[str, np.ndarray]:
    """The same, computed."""
    arrays = arrays_of(state)
    mx.eval(arrays)
    return {name: np.array(array.astype(mx.float32)) for name, array in arrays.items()}


def assert_equal(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    """Bit for bit."""
    assert got.keys() == want.keys()
    for name in want:
        assert got[name].shape == want[name].shape, name
        assert np.array_equal(got[name], want[name]), (name, np.abs(got[name] - want[name]).max())
