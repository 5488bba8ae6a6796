"""What a turn takes from the request and what from the model's own files."""

from pathlib import Path

import pytest

from llm_mtplx.engine.defaults import resolve_sampling
from llm_mtplx.protocol import Request
from llm_mtplx.speculative.distributions import Sampling

QWEN = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95}
GREEDY = {"do_sample": False, "top_k": 20}


@pytest.mark.parametrize(
    ("generation", "asked", "want"),
    [
        (QWEN, {}, Sampling(0.6, 20, 0.95)),
        (QWEN, {"temperature": 0}, Sampling(0, 20, 0.95)),
        (QWEN, {"temperature": 0.0}, Sampling(0, 20, 0.95)),
        (QWEN, {"top_k": 0, "min_p": 0.1}, Sampling(0.6, 0, 0.95, 0.1)),
        (GREEDY, {}, Sampling(0, 20)),
        (GREEDY, {"temperature": 0.9}, Sampling(0.9, 20)),
        ({}, {}, Sampling(1.0)),
        ({"temperature": "hot"}, {}, Sampling(1.0)),
    ],
)
def test_sampling(generation: dict, asked: dict, want: Sampling) -> None:
    got = resolve_sampling(Request("m", Path("x"), [], **asked), generation)
    assert got == want
    assert got.greedy is (want.temperature == 0)
