"""Many conversations, and several processes: nobody ever gets another's state."""

import json
import os
import subprocess
import sys
from pathlib import Path

from .test_processes import MODEL, SYSTEM, last_cache, llm

NAMES = [
    first + last
    for first in ("Tam", "Quil", "Zor", "Bren", "Mar", "Pet")
    for last in ("sin", "for", "blat", "na", "low")
]
TELL = """
import json, sys
import llm, sqlite_utils
from llm.cli import load_conversation, logs_db_path
from llm.migrations import migrate

model = llm.get_model("mtplx-demo")
database = sqlite_utils.Database(logs_db_path())
migrate(database)
out = []
for name, conversation_id, text, system in json.load(sys.stdin):
    if conversation_id is None:
        conversation = model.conversation()
    else:
        conversation = load_conversation(conversation_id)
        conversation.model = model
    response = conversation.prompt(text, system=system)
    said = response.text()
    response.log_to_db(database)
    out.append([name, conversation.id, said, response.response_json["cache"]])
print(json.dumps(out))
"""


def tell(turns: list[tuple[str, str | None, str, str | None]]) -> list:
    done = subprocess.run(
        [sys.executable, "-c", TELL],
        input=json.dumps(turns),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_thirty_conversations_each_with_its_own_name() -> None:
    assert len(NAMES) == 30
    told = tell([(name, None, f"My name is {name}.", SYSTEM) for name in NAMES])
    ids = {name: conversation for name, conversation, _, _ in told}
    asked = tell([(name, ids[name], "What is my name?", None) for name in reversed(NAMES)])
    for name, _, said, cache in asked:
        assert [other for other in NAMES if other in said] == [name]
        assert cache["source"] == "ssd"
        assert cache["restored"] > 40


def test_two_processes_go_on_with_one_conversation_at_once(user_path: Path) -> None:
    llm("-m", MODEL, "My name is Tamsin.", "-s", SYSTEM)
    conversation = json.loads(llm("logs", "--json", "-n", "1"))[0]["conversation_id"]
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "llm", "--cid", conversation, question],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ,
        )
        for question in ("What is my name?", "Do you remember my name?")
    ]
    for process in both:
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert "Tamsin" in out
    assert "Tamsin" in llm("--cid", conversation, "What is my name?")
    assert last_cache()["source"] == "ssd"
