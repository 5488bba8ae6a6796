"""The Vercel AI SDK with each provider that speaks one of our dialects."""

import json

import pytest

from .conftest import COUNT, COUNTED, HERE, Served, node, run


@pytest.mark.parametrize("provider", ["compatible", "chat", "responses", "anthropic"])
def test_ai_sdk(provider: str, served: Served) -> None:
    before = served.interrupted
    out = json.loads(run([node(), str(HERE / "ai_sdk.mjs"), provider, served.address, str(COUNT)]))
    assert out["texts"] == ["First answer.", "Second answer."]
    assert out["cached"] >= out["prompt"] - 8
    assert (out["steps"], out["input"]) == (2, {"a": 40, "b": 2})
    assert out["tool"] == out["streamedTool"] == "The tool returned: 42"
    assert out["pieces"] > 1 and out["counted"].startswith(COUNTED)
    served.wait_for_interruption(before)
