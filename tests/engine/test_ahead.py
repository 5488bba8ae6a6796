"""Where the template rewrites an answer, an engine that stays has read it before the next turn."""

from collections.abc import Iterator

import pytest

from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine import ahead as module
from llm_mtplx.engine.engine import Engine, shared_engine
from llm_mtplx.protocol import Finished, Request, Text
from llm_mtplx.speculative.decoder import Decoder

from ..waiting import until

THINK = {"enable_thinking": True}


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = shared_engine()
    engine.stays = True
    yield engine
    engine.stays = False


def turn(engine: Engine, said: list[dict[str, str]], **options) -> tuple[str, Finished]:
    settings = {"temperature": 0, "max_tokens": 40, "persist": False, **options}
    asked = Request("mtplx-demo", MODEL_DIR, said, THINK, **settings)
    *events, last = engine.stream(asked)
    assert isinstance(last, Finished)
    return "".join(event.text for event in events if isinstance(event, Text)), last


def two_turns(engine: Engine, conversation: str) -> tuple[list[dict[str, str]], Finished]:
    said = [{"role": "user", "content": "My name is Tamsin. I live in Porto."}]
    # A salt of its own, so that it finds nothing of the other conversations.
    own = {"conversation": conversation, "salt": conversation}
    text, _ = turn(engine, said, **own)
    until(lambda: engine.idle)
    said += [
        {"role": "assistant", "content": text},
        {"role": "user", "content": "What is my name?"},
    ]
    warm, last = turn(engine, said, **own)
    cold, _ = turn(engine, said, cache="off")
    assert warm == cold
    return said, last


def test_the_next_turn_begins_at_its_own_first_new_token(engine: Engine) -> None:
    said, last = two_turns(engine, "ahead")
    tokenizer = shared_engine()._residents.all[0].model.tokenizer
    prompt = tokenizer.render(said, THINK)
    new = prompt[prompt.rfind("<|im_start|>user") :]
    assert last.restored == last.prompt_tokens - len(tokenizer.encode(new))
    assert last.source == "ram"


def test_whoever_comes_in_between_waits_for_one_chunk_which_is_kept(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = module.read
    monkeypatch.setattr(module, "read", lambda *args: read(*args[:3], lambda: True))
    monkeypatch.setattr(Decoder, "_chunk_rows", lambda self: 8)
    _, interrupted = two_turns(engine, "preempted")
    engine.stays = False
    _, without = two_turns(engine, "without")
    assert interrupted.restored == without.restored + 8 > 8
