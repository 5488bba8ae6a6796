"""What a user said stands in llm's log and in the store's files, and nowhere else."""

import os
import subprocess
import sys
from pathlib import Path

from llm_mtplx.coldstore import ColdStore
from llm_mtplx.settings import cache_dir

TURNS = """
import logging, sys
logging.basicConfig(level=logging.DEBUG, filename=sys.argv[1])
import llm

conversation = llm.get_model("mtplx-demo").conversation()
print(conversation.id)
for text in ("My name is Tamsin. What is the capital of France?", "What is my name?"):
    print(conversation.prompt(text, system="You know Quillon.").text())
"""


def test_no_log_record_and_no_file_name_tells_what_was_said(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("LLM_MTPLX_MIN_TOKENS", "1")
    log = tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-c", TURNS, log], env=os.environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    conversation, *answers = done.stdout.splitlines()
    assert answers[-1] == "Your name is Tamsin."
    store = ColdStore(cache_dir())
    tips = store.tips(conversation)
    ids = store.ids(tips[0].fingerprint, tips[0].checkpoint)
    assert isinstance(ids, list) and len(ids) > 40
    told = log.read_text() + done.stderr
    told += "\n".join(str(path) for path in cache_dir().rglob("*"))
    for secret in ("Tamsin", "Quillon", "France", "Paris", conversation):
        assert secret not in told
    spelled = told.replace(" ", "")
    for at in range(len(ids) - 3):
        assert ",".join(map(str, ids[at : at + 4])) not in spelled
    assert store.close(10)
