"""Turns that are in progress at once are answered as each alone is, and nobody waits for long."""

import asyncio
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from llm_mtplx.catalog.fit import BANK_FLOOR, GIB, MIB, STATES, TRANSIENTS, Needs, fit_beside, plan
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.engine import Engine, shared_engine
from llm_mtplx.engine.scheduler import Scheduler
from llm_mtplx.errors import EngineError
from llm_mtplx.protocol import Event, Finished, Progress, Request, Text
from llm_mtplx.speculative import batch
from llm_mtplx.speculative.decoder import OPS_CHUNK, Decoder

QUESTIONS = (
    "My name is Tamsin. What is my name?",
    "Count from 1 to 9.",
    "What is the capital of Italy?",
    "Tell me a joke.",
    "What is 12 plus 30?",
)

SUM = {
    "type": "object",
    "properties": {"sum": {"type": "integer", "maximum": 99}},
    "required": ["sum"],
}


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = shared_engine()
    before = engine.parallel
    yield engine
    engine.parallel = before


def ask(question: str, **options: Any) -> Request:
    settings = {"temperature": 0, "max_tokens": 30, "persist": False, "cache": "off", **options}
    said = [{"role": "user", "content": question}]
    return Request("mtplx-demo", MODEL_DIR, said, {}, **settings)


def answer(events: list[Event]) -> tuple[str, Finished]:
    last = events[-1]
    assert isinstance(last, Finished)
    return "".join(event.text for event in events if isinstance(event, Text)), last


def in_company(engine: Engine, requests: list[Request]) -> list[list[Event]]:
    """All begun before any goes on."""
    gate = threading.Event()
    held = threading.Thread(target=engine.call, args=(gate.wait,))
    held.start()
    streams = [engine.stream(request) for request in requests]
    gate.set()
    found: list[list[Event]] = [[] for _ in streams]

    def read(at: int) -> None:
        found[at] = list(streams[at])

    readers = [threading.Thread(target=read, args=(at,)) for at in range(len(streams))]
    for reader in readers:
        reader.start()
    for thread in (held, *readers):
        thread.join()
    return found


def test_answers_are_those_of_turns_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked for: depths, temperatures, schemas, stops, lengths."""
    ways: list[dict[str, Any]] = [
        {"depth": 3},
        {"temperature": 0.9, "seed": 5},
        {"depth": 0, "stop": ["Rome"]},
        {"temperature": 1.3, "seed": 6, "depth": 2, "max_tokens": 7},
        {"schema": SUM},
    ]
    requests = [ask(q, **way) for q, way in zip(QUESTIONS, ways, strict=True)]
    alone = [answer(list(engine.stream(request))) for request in requests]
    company = []
    whole = batch.step

    def counted(trunk: Any, head: Any, steps: Any) -> Any:
        company.append(len(steps))
        return whole(trunk, head, steps)

    monkeypatch.setattr(batch, "step", counted)
    engine.parallel = 5
    together = [answer(events) for events in in_company(engine, requests)]
    assert max(company) >= 3
    for (text, last), (want, then) in zip(together, alone, strict=True):
        assert text == want
        assert (last.finish_reason, last.output_tokens) == (then.finish_reason, then.output_tokens)


def test_no_more_than_so_many_at_once(engine: Engine) -> None:
    engine.parallel = 2
    seen = []
    whole = Scheduler.step

    def counted(scheduler: Scheduler) -> None:
        seen.append(len(scheduler))
        whole(scheduler)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Scheduler, "step", counted)
        in_company(engine, [ask(question) for question in QUESTIONS])
    assert max(seen) == 2


def test_who_finds_no_memory_waits_for_others_to_end(engine: Engine) -> None:
    requests = [ask(question, max_tokens=8) for question in QUESTIONS[:3]]
    want = [answer(list(engine.stream(request)))[0] for request in requests]
    going: list[int] = []
    with pytest.MonkeyPatch.context() as patched:
        # A window of one conversation's length.
        patched.setattr(
            "llm_mtplx.catalog.fit.fit_beside", lambda memory, needs, tokens: len(tokens) < 2
        )
        advance = batch.advance
        patched.setattr(
            "llm_mtplx.engine.scheduler.advance", lambda b: going.append(len(b)) or advance(b)
        )
        found = in_company(engine, requests)
    assert [answer(events)[0] for events in found] == want
    assert max(going) == 1
    waited = [
        any(isinstance(e, Progress) and e.phase == "waiting" for e in events) for events in found
    ]
    assert waited == [False, True, True]


def test_the_memory_of_turns_side_by_side() -> None:
    """What the plan leaves beside the weights, each with its recurrent states."""
    needs = Needs(weights=20 * GIB, kv_per_token=65_536, state=154 * MIB)
    room = plan(64 * GIB, needs).conversations
    assert room == 48 * GIB - 20 * GIB - TRANSIENTS - BANK_FLOOR
    most = (room - 4 * STATES * needs.state) // needs.kv_per_token
    assert fit_beside(64 * GIB, needs, [most // 4] * 4)
    assert not fit_beside(64 * GIB, needs, [most // 4] * 3 + [most // 4 + 4])
    # Whatever the plan says: one that fills the window is answered.
    small = Needs(weights=20 * GIB, kv_per_token=65_536, state=154 * MIB)
    window = plan(16 * GIB, small).window
    assert fit_beside(16 * GIB, small, [window])
    assert not fit_beside(16 * GIB, small, [window, 1])


SYSTEM = "You are a helpful assistant. You answer in short and polite sentences. " * 6


def test_newcomers_read_what_they_share_once(engine: Engine) -> None:
    said = [
        [{"role": "system", "content": SYSTEM}, {"role": "user", "content": q}] for q in QUESTIONS
    ]
    requests = [
        replace(ask("", cache="on", salt="shared", max_tokens=4), messages=messages)
        for messages in said
    ]
    alone = [answer(list(engine.stream(replace(r, cache="off"))))[0] for r in requests]
    engine.parallel = 4
    together = [answer(events) for events in in_company(engine, requests)]
    assert [text for text, _ in together] == alone
    first, *others = [last.restored for _, last in together]
    assert first == 0
    assert len(set(others)) == 1 and others[0] > 60


def test_a_fork_begins_where_its_parent_is_while_that_is_being_answered(engine: Engine) -> None:
    """The state that its turn has left at the end of their common history is copied."""
    said = [{"role": "user", "content": QUESTIONS[0]}]
    base = ask("", cache="on", salt="fork", conversation="parent", max_tokens=20)
    text, _ = answer(list(engine.stream(replace(base, messages=said))))
    said += [{"role": "assistant", "content": text}, {"role": "user", "content": "Count to 50."}]
    parent = replace(base, messages=said, max_tokens=60)
    fork = replace(
        parent, conversation="fork", messages=[*said[:-1], {**said[-1], "content": "Hi"}]
    )
    want, _ = answer(list(engine.stream(replace(fork, cache="off"))))
    (whole, _), (forked, last) = (answer(e) for e in in_company(engine, [parent, fork]))
    assert forked == want
    assert whole == answer(list(engine.stream(replace(parent, cache="off"))))[0]
    assert last.restored >= 15 and last.source == "ram"


def test_a_long_prompt_is_read_in_slices_between_rounds(engine: Engine) -> None:
    """Of a turn that is being answered: no two slices without a round between them."""
    order: list[str] = []
    forward, steps = Decoder._forward, Decoder.steps

    def slice_(decoder: Decoder, ids: list[int]) -> None:
        if len(ids) > 8:
            order.append("slice")
            assert len(ids) <= OPS_CHUNK
        forward(decoder, ids)

    def rounds(decoder: Decoder, *args: Any) -> Any:
        order.append("round")
        return steps(decoder, *args)

    answering = threading.Event()
    first = engine.stream(ask(QUESTIONS[0]))  # loaded, whatever ran before
    list(first)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Decoder, "_forward", slice_)
        patched.setattr(Decoder, "steps", rounds)
        short = engine.stream(ask("Count from 1 to 99.", max_tokens=400, depth=1))

        def read() -> None:
            for event in short:
                if isinstance(event, Text):
                    answering.set()

        reader = threading.Thread(target=read)
        reader.start()
        assert answering.wait(120)
        long = "The dog sees a cat. " * 150
        events = list(engine.stream(ask(long, max_tokens=2, depth=1)))
        reader.join()
    read_in = [event.done for event in events if isinstance(event, Progress) and event.done]
    assert len(read_in) >= 4
    told = "".join({"slice": "s", "round": "r"}[each] for each in order)
    begun, ended = told.index("r"), told.rindex("s")
    assert "ss" not in told[begun:ended].rstrip("s")


def test_one_that_hangs_up_ends_alone(engine: Engine) -> None:
    want, _ = answer(list(engine.stream(ask(QUESTIONS[1]))))
    left = engine.stream(ask("Count from 1 to 99.", max_tokens=400))
    stays = engine.stream(ask(QUESTIONS[1]))
    for event in left:
        if isinstance(event, Text):
            break  # leaving the loop abandons the turn
    assert answer(list(stays))[0] == want


def test_one_that_fails_ends_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [ask(QUESTIONS[0]), ask(QUESTIONS[1], depth=5)]
    want = [answer(list(engine.stream(request)))[0] for request in requests]
    steps = Decoder.steps

    def failing(decoder: Decoder, depth: int, *args: Any) -> Any:
        if depth == 5 and decoder.state.position > 25:
            raise ValueError("broken")
        return steps(decoder, depth, *args)

    monkeypatch.setattr(Decoder, "steps", failing)
    results: list[Any] = [None, None]

    def read(at: int) -> None:
        try:
            results[at] = answer(list(engine.stream(requests[at])))[0]
        except EngineError as error:
            results[at] = error

    readers = [threading.Thread(target=read, args=(at,)) for at in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert results[0] == want[0]
    assert "broken" in str(results[1])
    monkeypatch.undo()
    assert answer(list(engine.stream(requests[1])))[0] == want[1]


def test_tasks_wait_for_the_turns_in_progress_and_newcomers_for_the_task(engine: Engine) -> None:
    order: list[str] = []
    begun = threading.Event()
    first = engine.stream(ask("Count from 1 to 99.", max_tokens=60))

    def read() -> None:
        for event in first:
            if isinstance(event, Text):
                begun.set()
        order.append("first")

    reader = threading.Thread(target=read)
    reader.start()
    assert begun.wait(120)
    task = engine._begin(lambda: order.append("task") or len(engine._scheduler))
    second = engine.stream(ask(QUESTIONS[0], max_tokens=1))
    assert task.result() == 0
    list(second)
    order.append("second")
    reader.join()
    assert order.index("task") < order.index("second")


@pytest.mark.parametrize("seed", range(2))
def test_conversations_at_random_times(engine: Engine, seed: int, tmp_path: Any) -> None:
    """Each its own turns, one after the other; what RAM has of them is found."""
    rng = random.Random(seed)
    salt = f"random {seed}"

    async def talk(name: str, questions: list[str], parallel: bool) -> list[tuple[str, int]]:
        said: list[dict[str, str]] = []
        told = []
        for question in questions:
            if parallel:
                await asyncio.sleep(rng.random() / 20)
            said.append({"role": "user", "content": question})
            request = replace(
                ask("", cache="on", max_tokens=12, conversation=name, salt=f"{salt} {parallel}"),
                messages=list(said),
                template_args={"preserve_thinking": True},
            )
            events = [e async for e in engine.astream(request, name) if e is not None]
            text, last = answer(events)
            said.append({"role": "assistant", "content": text})
            told.append((text, last.restored))
        return told

    talks = [(f"talk {at}", rng.sample(QUESTIONS, 3)) for at in range(4)]

    async def everybody() -> list[list[tuple[str, int]]]:
        return await asyncio.gather(*(talk(*each, parallel=True) for each in talks))

    async def one_by_one() -> list[list[tuple[str, int]]]:
        return [await talk(*each, parallel=False) for each in talks]

    together, alone = asyncio.run(everybody()), asyncio.run(one_by_one())
    for turns, same in zip(together, alone, strict=True):
        assert [text for text, _ in turns] == [text for text, _ in same]
        assert all(restored > 20 for _, restored in turns[1:])
