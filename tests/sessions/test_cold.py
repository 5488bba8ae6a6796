"""A turn in a new process goes on from the SSD with the ids of a cold run."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from llm_mtplx.architectures.mtp_head import MTPHead
from llm_mtplx.architectures.state import State
from llm_mtplx.architectures.trunk import Trunk
from llm_mtplx.coldstore import ColdStore, StoreLimits, ladder
from llm_mtplx.coldstore.keys import Chain
from llm_mtplx.engine.load import LoadedModel
from llm_mtplx.protocol import Finished
from llm_mtplx.sessions.bank import Bank
from llm_mtplx.sessions.keeper import Keeper
from llm_mtplx.sessions.persist import read_line, save_line
from llm_mtplx.sessions.reasons import Reason
from llm_mtplx.sessions.session import Checkpoint
from llm_mtplx.speculative.decoder import OPS_CHUNK, Decoder
from llm_mtplx.speculative.distributions import Sampling

from ..coldstore.test_writer import Gate
from ..dictated import LIMITS, keeper, small_model
from ..speculative.states import assert_equal, named_arrays
from ..tiny import random_trunk_and_head
from .talk import Clock, Talk

PRESERVE = {"preserve_thinking": True}
SYSTEM = {"role": "system", "content": "You answer in short sentences and you are never rude."}
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return small_model()


@pytest.fixture
def processes(model: LoadedModel, tmp_path: Path) -> Iterator[Callable[[], Keeper]]:
    """Each call is what a new process would have: an empty bank, and the store as it was left."""
    opened: list[ColdStore] = []

    def start() -> Keeper:
        if opened:
            assert opened[-1].close(TIMEOUT_S)
        opened.append(ColdStore(tmp_path / "cache"))
        return keeper(model, Bank(LIMITS, Clock()), opened[-1])

    yield start
    for store in opened:
        store.close(TIMEOUT_S)


def talk(model: LoadedModel, processes: Callable[[], Keeper], **options: Any) -> Talk:
    return Talk(model, Bank(LIMITS, Clock()), memory=processes, **options)


@pytest.mark.parametrize("draft", [0, 3])
def test_a_preserving_template_goes_on_from_the_end(model, processes, draft: int) -> None:
    one = talk(model, processes, template=PRESERVE)
    assert one.say("One.", depth=draft).restored == 0
    for text in ("Two.", "Three."):
        kept = one.turn.decoder.state.position
        again = one.say(text, depth=3 - draft)
        assert (again.restored, again.source, again.miss_reason) == (kept, "ssd", None)


def test_a_rewriting_template_goes_on_from_the_answer_header(model, processes) -> None:
    one = talk(model, processes)
    one.say("One.")
    for text in ("Two.", "Three."):
        history = one.messages[:-1]
        header = model.tokenizer.render(history, {}, generation_prompt=False)
        again = one.say(text)
        assert (again.restored, again.source) == (len(model.tokenizer.encode(header)), "ssd")


def test_two_conversations_share_their_system_prompt(model, processes) -> None:
    talk(model, processes, messages=[SYSTEM], name="a").say("One.")
    other = talk(model, processes, messages=[SYSTEM], name="b").say("Another thing.")
    system = model.tokenizer.render([SYSTEM], {}, generation_prompt=False)
    assert (other.restored, other.source) == (len(model.tokenizer.encode(system)), "ssd")


def test_what_a_conversation_has_on_disk_after_many_processes(model, processes) -> None:
    """One end of the system prompt; a tip that has a successor is not mistaken for one."""
    one = talk(model, processes, messages=[SYSTEM], template=PRESERVE)
    for number in range(4):
        one.say(f"Question {number}.")
    memory = processes()
    assert memory._persistence is not None
    entries = memory._persistence.store.tips("a")
    system = model.tokenizer.render([SYSTEM], {}, generation_prompt=False)
    prefixes = [entry.position for entry in entries if entry.role == "prefix"]
    assert prefixes == [len(model.tokenizer.encode(system))]
    assert sum(entry.role == "tip" for entry in entries) == 4


def test_the_models_own_ids_come_back(model, processes) -> None:
    tokenizer = model.tokenizer
    spelled = [token for letter in "capital" for token in tokenizer.encode(letter)]
    (eos,) = model.eos_ids
    one = talk(model, processes, template=PRESERVE)
    one.say("One.", dictated=[*spelled, eos])
    kept = one.turn.decoder.state.position
    again = one.say("Two.")
    assert (again.restored, again.source) == (kept, "ssd")
    assert one.turn.prompt[:kept][-len(spelled) - 1 :] == [*spelled, eos]


def spelled(model: LoadedModel, word: str) -> list[int]:
    """``word`` in ids that the tokenizer would not make of it."""
    ids = [token for letter in word for token in model.tokenizer.encode(letter)]
    assert ids != model.tokenizer.encode(word)
    return [*ids, *model.eos_ids]


def test_the_pointer_finds_the_models_own_ids_without_a_conversation(model, processes) -> None:
    one = talk(model, processes, template=PRESERVE, name=None)
    one.say("One.", dictated=spelled(model, "capital"))
    kept = one.turn.decoder.state.position
    assert one.say("Two.").restored == kept


def test_the_models_own_ids_stay_known_after_a_restore(model, processes) -> None:
    """Also for the turns that follow in the same process."""
    one = talk(model, processes, template=PRESERVE)
    one.say("One.", dictated=spelled(model, "capital"))
    memory = processes()
    one.memory = lambda: memory
    said = [*model.tokenizer.encode("A river."), *model.eos_ids]
    assert one.say("Two.", dictated=said).source == "ssd"
    kept = one.turn.decoder.state.position
    again = one.say("Three.")
    assert (again.restored, again.source, again.miss_reason) == (kept, "ram", None)


def test_a_read_that_ends_inside_an_answer_keeps_nothing_of_it(model, processes) -> None:
    one = talk(model, processes, template=PRESERVE)
    one.messages = [
        {"role": "user", "content": "One."},
        {"role": "assistant", "content": long_text(model, 700)},
    ]
    turn = one.begin("Two.")
    turn._cancelled = lambda: True
    assert turn.run().finish_reason == "interrupted"
    assert turn.decoder.state.position == OPS_CHUNK < 700  # inside the answer
    turn.keep()
    memory = processes()
    assert memory.known_answers("a", None, "on") == {}


@pytest.mark.parametrize("where", ["ram", "ssd"])
def test_forks_that_said_the_same_in_other_ids(model, processes, where: str) -> None:
    """The pointer tells one conversation's lines apart where their text does not."""
    memory = processes()
    trunk = talk(model, processes if where == "ssd" else lambda: memory, template=PRESERVE)
    trunk.say("One.")
    forks = [trunk.fork("a") for _ in range(2)]
    answers = [spelled(model, "capital"), [*model.tokenizer.encode("capital"), *model.eos_ids]]
    lines = []
    for fork, answer in zip(forks, answers, strict=True):
        fork.say("Two.", dictated=answer)
        lines.append(list(fork.turn.decoder.state.ids))
        assert memory._persistence is not None
        memory._persistence.store.flush(TIMEOUT_S)
    for fork, line in zip(forks, lines, strict=True):
        # In RAM another answer to one question takes the place of the one before.
        assert fork.say("Three.").restored == len(line)
        assert fork.turn.prompt[: len(line)] == line


def long_text(model: LoadedModel, tokens: int) -> str:
    words = " ".join(f"word{number}" for number in range(tokens))
    return model.tokenizer.decode(model.tokenizer.encode(words)[:tokens]) or ""


@pytest.mark.parametrize("where", ["ram", "ssd"])
def test_an_edit_late_in_a_long_prompt_goes_on_from_a_rung(
    model, processes, monkeypatch, where: str
) -> None:
    monkeypatch.setattr(ladder, "LONG", 300)
    monkeypatch.setattr(ladder, "NEAREST", 128)
    memory = processes()
    text = long_text(model, 700)
    one = talk(model, processes if where == "ssd" else lambda: memory, template=PRESERVE)
    fork = one.fork("a")
    one.say(text)
    again = fork.say(f"{text[:-40]} and something else.")
    assert (again.restored, again.source) == (512, where)


def test_blocks_of_the_prompt_are_written_while_the_answer_is_made(
    model, processes, tmp_path: Path
) -> None:
    one = talk(model, processes, template=PRESERVE)
    turn = one.begin(long_text(model, 700))
    turn.run()
    processes()  # which waits for what is queued
    assert len(list((tmp_path / "cache").rglob("*.kv"))) == 2
    assert list((tmp_path / "cache").rglob("*.st")) == []


def test_junk_for_a_pointer_is_nothing(model, processes) -> None:
    one = talk(model, processes, template=PRESERVE)
    one.say("One.")
    for junk in ("", "../../etc/passwd", "0" * 64, "Z" * 64):
        one.pointer = junk
        assert one.say("Again.").restored > 0


def test_no_pointer_where_nothing_is_written(model, processes) -> None:
    one = talk(model, processes, template=PRESERVE)
    for options in ({"persist": False}, {"cache": "off"}):
        assert one.say("One.", **options).pointer is None
    assert one.say("One.", cache="write-only").pointer is not None
    short = talk(model, lambda: replace_minimum(processes(), 10**6))
    assert short.say("One.").pointer is None


def replace_minimum(memory: Keeper, tokens: int) -> Keeper:
    assert memory._persistence is not None
    memory._persistence = replace(memory._persistence, min_tokens=tokens)
    return memory


def test_a_short_conversation_says_so(model, processes) -> None:
    one = talk(model, lambda: replace_minimum(processes(), 10**6))
    assert one.say("One.").miss_reason == Reason.NOTHING_STORED
    assert one.say("Two.").miss_reason == Reason.TOO_SHORT


@pytest.mark.parametrize("template", [None, PRESERVE])
def test_what_was_too_short_is_told_by_where_the_last_turn_ended(
    model, processes, template: dict[str, bool] | None
) -> None:
    answer = spelled(model, "capital")

    def two_turns(minimum: int) -> tuple[int, Finished]:
        """Where the first had its tip, and the second."""
        one = talk(
            model,
            lambda: replace_minimum(processes(), minimum),
            name=f"{minimum}",
            template=template,
        )
        one.say("One.", dictated=answer)
        tip = one.turn.sequel.tip
        return tip, one.say(f"A question that is longer, number {minimum}.", dictated=answer)

    tip, _ = two_turns(10**6)
    _, second = two_turns(tip + 1)
    assert second.prompt_tokens > tip + 1
    assert (second.restored, second.miss_reason) == (0, Reason.TOO_SHORT)
    assert two_turns(tip)[1].restored == tip


@pytest.mark.parametrize("damage", ["truncate", "delete"])
def test_a_line_that_only_its_own_ids_would_find(model, processes, tmp_path, damage: str) -> None:
    one = talk(model, processes, template=PRESERVE)
    one.say("One.", dictated=spelled(model, "capital"))
    processes()
    for file in (tmp_path / "cache").rglob("*.st"):
        raw = file.read_bytes()
        file.unlink()
        if damage == "truncate":
            file.write_bytes(raw[:-7])
    again = one.say("Two.")
    gone = damage == "delete"
    assert again.miss_reason == (Reason.FILE_GONE if gone else Reason.CORRUPT_CHECKPOINT)


def test_other_weights_are_a_miss_that_says_so(model, processes) -> None:
    one = talk(model, processes)
    one.say("One.")

    def other_weights() -> Keeper:
        memory = processes()
        memory._persistence = replace(memory._persistence, fingerprint=lambda: "other")
        return memory

    one.memory = other_weights
    changed = one.say("Two.")
    assert (changed.restored, changed.miss_reason) == (0, Reason.WEIGHTS_CHANGED)
    assert one.say("Three.").restored > 0


def test_one_changed_character_is_tokenized_anew(model, processes) -> None:
    (eos,) = model.eos_ids
    one = talk(model, processes, template=PRESERVE)
    one.say("One.", dictated=[*model.tokenizer.encode("capital"), eos])
    kept = one.turn.decoder.state.position
    one.messages[-1]["content"] = "capitol"
    assert one.say("Two.").restored < kept


@pytest.mark.parametrize("ended", ["stop", "limit"])
def test_cut_answers_are_gone_on_from(model, processes, ended: str) -> None:
    one = talk(model, processes, template=PRESERVE)
    ids = model.tokenizer.encode("The capital of France is Paris.")
    options: dict[str, Any] = {"stop": ("ance",)} if ended == "stop" else {"max_tokens": 3}
    one.say("One.", dictated=ids, **options)
    kept = one.turn.decoder.state.position
    assert one.say("Two.").restored == kept


def test_an_answer_cut_inside_a_character_is_gone_on_from_before_it(model, processes) -> None:
    one = talk(model, processes, template=PRESERVE)
    one.say("One.", dictated=model.tokenizer.encode("🧑‍🚀"), max_tokens=2)
    assert one.messages[-1]["content"] == "\ufffd"
    header = model.tokenizer.render(one.messages[:-1], PRESERVE, generation_prompt=False)
    assert one.say("Two.").restored == len(model.tokenizer.encode(header))


@pytest.mark.parametrize(
    ("cache", "persist", "files", "restored"),
    [
        ("on", True, True, True),
        ("on", False, False, False),
        ("write-only", True, True, False),
        ("off", True, False, False),
    ],
)
def test_modes(model, processes, tmp_path: Path, cache, persist, files, restored) -> None:
    one = talk(model, processes, template=PRESERVE)
    one.say("One.", cache=cache, persist=persist)
    again = one.say("Two.", cache=cache, persist=persist)
    assert any((tmp_path / "cache").rglob("*.st")) is files
    assert bool(again.restored) is restored
    if cache != "on":
        assert again.miss_reason == Reason.CACHE_OFF


def test_reading_without_persisting_changes_no_byte(model, processes, tmp_path: Path) -> None:
    one = talk(model, processes, template=PRESERVE)
    one.say("One.")
    processes()

    def contents() -> dict[str, bytes]:
        # SQLite's shared memory notes readers as well.
        files = (p for p in (tmp_path / "cache").rglob("*") if p.is_file())
        return {str(p): p.read_bytes() for p in files if not p.name.endswith("-shm")}

    before = contents()
    assert one.say("Two.", persist=False).restored > 0
    processes()
    assert contents() == before


def test_off_leaves_nothing_in_the_bank(model) -> None:
    bank = Bank(LIMITS, Clock())
    Talk(model, bank, template=PRESERVE).say("One.", cache="off")
    assert bank.sessions == ()


@pytest.mark.parametrize("damage", ["flip", "truncate", "delete"])
def test_a_damaged_file_is_a_miss_with_a_reason(model, processes, tmp_path, damage) -> None:
    one = talk(model, processes, template=PRESERVE)
    said = [*model.tokenizer.encode("A capital."), *model.eos_ids]
    one.say("One.", dictated=said)
    processes()
    for file in (tmp_path / "cache").rglob("*.st"):
        raw = bytearray(file.read_bytes())
        raw[len(raw) // 2] ^= 1
        if damage == "delete":
            file.unlink()
        else:
            file.write_bytes(raw if damage == "flip" else raw[:-7])
    again = one.say("Two.", dictated=said)
    assert again.restored == 0
    gone = damage == "delete"
    assert again.miss_reason == (Reason.FILE_GONE if gone else Reason.CORRUPT_CHECKPOINT)
    healed = one.say("Three.")
    assert (healed.restored > again.prompt_tokens - 10, healed.source) == (True, "ssd")


Tiny = tuple[Trunk, MTPHead]


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def tiny(request: pytest.FixtureRequest) -> Tiny:
    trunk, head = random_trunk_and_head()
    if request.param == "bfloat16":
        trunk.model.set_dtype(mx.bfloat16)
        head.set_dtype(mx.bfloat16)
    return trunk, head


IDS = np.random.default_rng(3).integers(0, 64, 600).tolist()


@pytest.fixture(scope="module")
def prefilled(tiny: Tiny) -> Decoder:
    decoder = Decoder(*tiny, Sampling())
    list(decoder.prefill(IDS[:520]))
    return decoder


@pytest.mark.parametrize("position", [2, 48, 255, 256, 257, 258, 511, 512, 513])
@pytest.mark.parametrize("with_head", [True, False])
def test_states_survive_bit_for_bit(
    tiny: Tiny, tmp_path: Path, position: int, with_head: bool
) -> None:
    trunk, head = tiny[0], tiny[1] if with_head else None
    decoder = Decoder(trunk, head, Sampling())
    list(decoder.prefill(IDS[:position]))
    store = ColdStore(tmp_path)
    save_line(
        store, Chain("f", decoder.state.ids), decoder.state, Checkpoint.of(decoder.state), "c"
    )
    assert store.flush(TIMEOUT_S)
    found = store.lookup("f", IDS)
    assert found.position == position
    read, _ = read_line(store, found, IDS, State.empty(trunk, head))
    assert read is not None
    state, checkpoint = read
    assert state.ids == IDS[:position]
    assert checkpoint.position == position
    assert_equal(named_arrays(state), named_arrays(decoder.state))

    # And it goes on as the original does.
    other = Decoder(trunk, head, Sampling(), state=state)
    for each in (decoder, other):
        list(each.prefill(IDS[position : position + 3]))
    assert_equal(named_arrays(other.state), named_arrays(decoder.state))
    store.close(TIMEOUT_S)


@pytest.mark.parametrize("shared", [255, 256, 257, 299, 301])
def test_lines_that_part_near_the_edge_of_a_block(
    tiny: Tiny, prefilled: Decoder, tmp_path: Path, shared: int
) -> None:
    """Never the state of ids that are not the prompt's, however few differ."""
    trunk, head = tiny
    store = ColdStore(tmp_path)
    early = Decoder(trunk, head, Sampling())
    list(early.prefill(IDS[:200]))
    at_200 = named_arrays(early.state)
    save_line(store, Chain("f", early.state.ids), early.state, Checkpoint.of(early.state), "c")
    list(early.prefill(IDS[200:300]))
    at_300 = named_arrays(early.state)
    save_line(store, Chain("f", early.state.ids), early.state, Checkpoint.of(early.state), "c")
    assert store.flush(TIMEOUT_S)
    other = [*IDS[:shared], *((token + 1) % 64 for token in IDS[shared:400])]
    read, _ = read_line(store, store.lookup("f", other), other, State.empty(trunk, head))
    assert read is not None
    assert read[0].ids == other[: 300 if shared >= 300 else 200]
    assert_equal(named_arrays(read[0]), at_300 if shared >= 300 else at_200)
    store.close(TIMEOUT_S)


def test_a_turn_writes_only_what_is_new(tiny: Tiny, tmp_path: Path) -> None:
    trunk, head = tiny
    decoder = Decoder(trunk, head, Sampling())
    store = ColdStore(tmp_path)
    list(decoder.prefill(IDS[:300]))
    save_line(
        store, Chain("f", decoder.state.ids), decoder.state, Checkpoint.of(decoder.state), "c"
    )
    assert store.flush(TIMEOUT_S)
    first = store.report().written_bytes
    list(decoder.prefill(IDS[300:310]))
    save_line(
        store, Chain("f", decoder.state.ids), decoder.state, Checkpoint.of(decoder.state), "c"
    )
    assert store.flush(TIMEOUT_S)
    report = store.report()
    assert report.blocks == 1
    # The second save has the tail's rows and a state, not the 256 rows of the block again.
    block_rows = 256 * 2 * 32 * 2 * (2 + 1) * (4 if decoder.state.hidden.dtype == mx.float32 else 2)
    assert report.written_bytes - first < first - block_rows // 2
    store.close(TIMEOUT_S)


def test_more_than_the_queue_holds_is_written_over_several_turns(
    tiny: Tiny, prefilled: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that stands still holds nobody up, and what is written is not written again."""
    monkeypatch.setattr("llm_mtplx.sessions.persist.STREAM_S", 0.01)
    gate = Gate("announced")
    store = ColdStore(tmp_path, StoreLimits(backlog_bytes=1), gate)
    state = prefilled.state
    save_line(store, Chain("f", state.ids), state, Checkpoint.of(state), "c")
    assert gate.reached.wait(TIMEOUT_S)
    waiting = store.report().pending_bytes
    gate.opened.set()
    assert store.flush(TIMEOUT_S)
    assert store.report().blocks == 1
    assert store.report().nbytes >= waiting > 0
    assert store.missing(Chain("f", IDS[:512])) == [256]
    monkeypatch.setattr("llm_mtplx.sessions.persist.STREAM_S", TIMEOUT_S)
    save_line(store, Chain("f", state.ids), state, Checkpoint.of(state), "c")
    assert store.flush(TIMEOUT_S)
    assert store.lookup("f", IDS).position == 520
    # Counted once: the turn that gave up.
    assert store.report().drops == {"backlog_full": 1}
    store.close(TIMEOUT_S)


def test_saving_keeps_no_view_of_what_goes_on_being_written(tiny: Tiny, tmp_path: Path) -> None:
    """The saved rows are those of the moment of saving."""
    trunk, head = tiny
    decoder = Decoder(trunk, head, Sampling())
    list(decoder.prefill(IDS[:100]))
    before = named_arrays(decoder.state)
    started = []
    store = ColdStore(tmp_path, failpoint=started.append)
    checkpoint = Checkpoint.of(decoder.state)
    save_line(store, Chain("f", decoder.state.ids), decoder.state, checkpoint, "c")
    decoder.state.cache[-1].trim(50)
    list(decoder.prefill(IDS[200:250]))
    assert store.flush(TIMEOUT_S)
    read, _ = read_line(store, store.lookup("f", IDS), IDS, State.empty(trunk, head))
    assert read is not None and started
    assert_equal(named_arrays(read[0]), before)
    store.close(TIMEOUT_S)
