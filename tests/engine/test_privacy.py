"""What a user said goes into the answer and the store's files, and into no log and no name."""

import logging
from pathlib import Path

import pytest

from llm_mtplx.coldstore import ColdStore
from llm_mtplx.engine.engine import shared_engine
from llm_mtplx.protocol import Request, Text

from ..folders import copy_demo

TIMEOUT_S = 30.0


def test_no_log_record_and_no_file_name_tells_what_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LLM_MTPLX_MIN_TOKENS", "1")
    caplog.set_level(logging.DEBUG)
    folder, engine = copy_demo(tmp_path / "model"), shared_engine()
    messages = [{"role": "system", "content": "You know Quillon."}]
    conversation = "01conversation-of-tamsin"
    for text in ("My name is Tamsin. What is the capital of France?", "What is my name?"):
        messages.append({"role": "user", "content": text})
        request = Request("m", folder, list(messages), conversation=conversation)
        answer = "".join(e.text for e in engine.stream(request) if isinstance(e, Text))
        messages.append({"role": "assistant", "content": answer})
    assert messages[-1]["content"] == "Your name is Tamsin."
    store = engine._residents.store
    assert isinstance(store, ColdStore)
    engine.call(lambda: None)  # the turn's state is handed over by now
    assert store.flush(TIMEOUT_S)
    tip = store.tips(conversation)[0]
    ids = store.ids(tip.fingerprint, tip.checkpoint)
    assert isinstance(ids, list) and len(ids) > 40
    records = [f"{each.getMessage()} {each.exc_text} {each.args}" for each in caplog.records]
    told = "\n".join([*records, *(str(path) for path in store.path.rglob("*"))])
    for secret in ("Tamsin", "tamsin", "Quillon", "France", "Paris"):
        assert secret not in told
    spelled = told.replace(" ", "")
    for at in range(len(ids) - 3):
        assert ",".join(map(str, ids[at : at + 4])) not in spelled
