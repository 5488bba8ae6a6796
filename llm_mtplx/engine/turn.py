"""One turn: a request to tokens, text and figures."""

import logging
import math
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import mlx.core as mx

from ..architectures.state import State
from ..catalog.families import family_at
from ..chat.answer import Answer
from ..chat.decode import AnswerDecoder
from ..chat.effort import as_the_family
from ..chat.history import OwnIds, encode_history
from ..chat.length import least_tokens
from ..chat.pieces import Part
from ..chat.toolcalls import is_call
from ..chat.tools import all_said, names_of
from ..coldstore import CheckpointRole, ladder
from ..protocol import (
    Event,
    Finished,
    FinishReason,
    Notice,
    Progress,
    Request,
    Restored,
)
from ..sessions.bank import common_prefix
from ..sessions.keeper import Keeper
from ..sessions.reasons import Reason
from ..sessions.session import Checkpoint, KnownTurn, pack
from ..speculative.batch import Plan
from ..speculative.decoder import Decoder
from ..speculative.depth import USELESS_DRAFTS
from ..speculative.logprobs import Logprobs
from ..speculative.penalties import Penalties
from .beginning import answer_header, system_end
from .defaults import (
    check_bias,
    resolve_draft_sampling,
    resolve_drafts,
    resolve_penalties,
    resolve_room,
    resolve_sampling,
    sampling_defaults,
)
from .events import events_of
from .load import LoadedModel
from .next_prompt import Sequel
from .scheduler import Steps, alone
from .structured import check_complete, masks_for, rules_for

logger = logging.getLogger(__name__)

ANSWER_ROOM = 1024  # tokens of an answer for which there is memory when it begins
WORTH_WAITING = 32  # tokens that another turn is reading anyway


class Turn:
    """Answers one request, beginning with what the bank has of it.

    ``run`` emits the answer; ``keep`` then gives the state back to the bank, which the user need
    not wait for.
    """

    def __init__(
        self,
        model: LoadedModel,
        request: Request,
        keeper: Keeper,
        emit: Callable[[Event], None],
        cancelled: Callable[[], bool],
    ) -> None:
        self._started = time.perf_counter()
        request, notice = as_the_family(request, model.tokenizer, family_at(model.folder.path))
        if notice:
            emit(Notice(notice))
        self.model = model
        self._request = request
        self._keeper = keeper
        self._emit = emit
        self._cancelled = cancelled
        self._header = 0
        self._marks: list[int] = []  # positions at which reading leaves a state
        self._saving: Iterator[bool] = iter(())
        self._roles: dict[int, CheckpointRole] = {}
        self.emitted: list[int] = []
        self.sequel: Sequel | None = None  # known at the end
        self._counts = resolve_drafts(model, request)
        # One that every reader of JSON can hold, JavaScript's among them.
        self._seed = secrets.randbits(53) if request.seed is None else request.seed
        tokenizer = model.tokenizer
        self._known_answers = keeper.known_answers(
            request.conversation, request.pointer, request.cache
        )
        self._text = request.prompt or tokenizer.render(request.messages, request.template_args)
        # Before it is encoded, for which a text that cannot fit takes minutes.
        least = least_tokens(
            self._text, tokenizer.encode, tokenizer.longest, model.context_window - 1
        )
        resolve_room(model, request, least)
        own: list[OwnIds] = []
        self.prompt = self._encode(self._text, own)
        check_bias(model, request)
        self._room = resolve_room(model, request, len(self.prompt))
        thinking = tokenizer.starts_in_reasoning(self.prompt)
        self._rules = rules_for(model, request, thinking)
        # JSON of a schema holds no calls, whatever it looks like.
        callable_tools = request.tools if request.calls and request.schema is None else []
        self.answer = Answer(
            AnswerDecoder(
                tokenizer.token_bytes,
                tokenizer.think_start,
                tokenizer.think_end,
                thinking,
                names_of(callable_tools),
                tag_alone=self._rules is not None,
            ),
            request.stop,
            callable_tools,
            place_tokens=request.logprobs is not None,
        )
        self._thinking = thinking
        self._own_ids = own
        self._take_session()

    def _take_session(self) -> None:
        model, request, own = self.model, self._request, self._own_ids
        before = time.perf_counter()
        self._taken = self._keeper.take(
            self.prompt,
            request.conversation,
            all_said(request.messages),
            lambda: State.empty(model.trunk, model.head),
            request.cache,
            request.persist,
        )
        self._loan = self._taken.loan
        self._restore_s = time.perf_counter() - before
        with self._keeper.not_lost(self._loan, request.cache):
            # A line from the SSD, or a new one, has not seen them being made.
            known = (KnownTurn(o.message, o.ids, None, o.start, o.start + len(o.ids)) for o in own)
            self._loan.session.adopt([*known])
            self.decoder = self._decoder(self._thinking)

    def look_again(self) -> None:
        """Before the first step: take what turns in progress have read of this prompt meanwhile."""
        if self._request.cache != "on":
            return
        if self._keeper.best_position(self.prompt) > self._loan.position:
            self._keeper.put_back(self._loan, self._request.cache)
            self._take_session()

    def will_read(self, other: "Turn") -> bool:
        """Whether this turn is on its way to a position at which it leaves a state that ``other``
        can begin with, and that would save it much."""
        if self._request.cache != "on" or other._request.cache != "on":
            return False
        if (self.model.key, self._request.salt) != (other.model.key, other._request.salt):
            return False
        shared = common_prefix(pack(self.prompt), pack(other.prompt))
        now, worth = self.decoder.state.position, other._loan.position + WORTH_WAITING
        return any(now < mark and worth <= mark <= shared for mark in self._marks)

    def _decoder(self, thinking: bool) -> Decoder:
        model, request = self.model, self._request
        defaults = sampling_defaults(model.folder)
        sampling = resolve_sampling(request, defaults)
        return Decoder(
            model.trunk,
            model.head,
            sampling,
            self._seed,
            Penalties(resolve_penalties(request, defaults), self.prompt),
            self._loan.session.state,
            draft_sampling=resolve_draft_sampling(
                sampling, model.folder.contract.recommended_draft_sampler
            ),
            masks=masks_for(model, request, self._rules, thinking),
            logprobs=None if request.logprobs is None else Logprobs(request.logprobs),
        )

    def _encode(self, text: str, used: list[OwnIds] | None = None) -> list[int]:
        return encode_history(text, self.model.tokenizer.encode, self._known_answers, used)

    def run(self) -> Finished:
        """The turn alone, from beginning to end: see ``steps``."""
        return alone(self)

    def steps(self) -> Steps[Finished]:
        """Emit the answer as it comes; returns how the turn went.

        Yields before each slice of the prompt that is to be read and before each round: whoever
        runs it does other turns' meanwhile. After an error nothing of this turn is kept; what the
        bank had before, it has again.
        """
        with self._keeper.not_lost(self._loan, self._request.cache):
            return (yield from self._steps())

    def _steps(self) -> Steps[Finished]:
        mx.reset_peak_memory()
        at, taken = self._loan.position, self._taken
        self._emit(Restored(at, len(self.prompt), taken.source, taken.reason, self._restore_s))
        prefilling = time.perf_counter()
        request, tokenizer = self._request, self.model.tokenizer
        system = system_end(tokenizer, request, self._text)
        self._header = answer_header(tokenizer, request, self._text, len(self.prompt))
        self._saving = self._blocks_to_save()
        finish = yield from self._read_prompt(system)
        first_token = prefilled = time.perf_counter()
        if finish is None:
            new = self._end_thinking() or [self.decoder.first()]
            first_token = time.perf_counter()
            while (finish := self._take(new)) is None:
                new = self._end_thinking() or (yield from self._round())
                self._save_block()
        self._show(self.answer.finish())
        if self.answer.stopped:
            finish = "stop"
        elif finish == "eos" and self.answer.calls:
            finish = "tool_calls"
        if not self._request.tools and is_call(self.answer.text):
            self._emit(
                Notice("the model called a tool but none was offered; the call is kept as text.")
            )
        check_complete(
            model=self.model,
            request=self._request,
            rules=self._rules,
            finish=finish,
            prompt_tokens=len(self.prompt),
            answer=self.answer,
        )
        self.sequel = Sequel(
            self.model.tokenizer,
            self._request,
            self._encode,
            self._text,
            self.prompt,
            self._header,
            self.decoder.state.ids,
            self.emitted,
            self.answer,
            self._loan.session,
        )
        return Finished(
            finish_reason=finish,
            prompt_tokens=len(self.prompt),
            output_tokens=self.answer.tokens,
            reasoning_tokens=self.answer.reasoning_tokens,
            depth=self._counts.depth,
            rounds=self._counts.rounds,
            drafted=self._counts.drafted,
            accepted=self._counts.accepted,
            copied=self._counts.copied,
            copies_accepted=self._counts.copies_accepted,
            pointer=self._pointer(self.sequel),
            restored=self._loan.position,
            source=self._taken.source,
            miss_reason=self._miss_reason(),
            restore_s=self._restore_s,
            ttft_s=first_token - self._started,
            prefill_s=prefilled - prefilling,
            decode_s=time.perf_counter() - first_token,
            peak_memory=mx.get_peak_memory(),
            stop_string=self.answer.stop_string,
            seed=self._seed,
        )

    @property
    def tokens(self) -> int:
        """That there must be memory for: a longer answer than this makes its room as it comes."""
        return len(self.prompt) + min(self._room, ANSWER_ROOM)

    @property
    def cancelled(self) -> bool:
        return self._cancelled()

    def plan_in(self, company: int, plan: Plan) -> Plan:
        """``plan`` for a round of so many conversations."""
        counts = self._counts
        return replace(plan, depth=counts.depth_in(company), copies=counts.copies_in(company))

    def _blocks_to_save(self) -> Iterator[bool]:
        if not self._request.persist:
            return iter(())
        history = self.prompt[: self._header]
        return self._keeper.saving(history, self._loan.session.state, self._request.cache)

    def _save_block(self) -> bool:
        """Hand one finished block to the store; False where there is none. What goes wrong with it
        is a block that is read again another time, never an error of the turn."""
        try:
            return next(self._saving, False)
        except Exception as error:
            logger.warning("the prompt's blocks were not saved: %r", error)
            self._saving = iter(())
            return False

    def _read_prompt(self, system: int) -> Steps[FinishReason | None]:
        """Forward what the bank did not have, leaving checkpoints on the way and the blocks that
        are finished to the store."""
        position = self._loan.position
        if [message["role"] for message in self._request.messages[-1:]] != ["tool"]:
            self._loan.session.asked = self._header
        rungs = [rung for rung in ladder.rungs(self._header) if rung > position]
        self._roles = {system: "prefix", **dict.fromkeys(rungs, "ladder")}
        # A raw prompt may come again as it is; after a rendered one follows its answer.
        end = len(self.prompt) + (self._request.prompt is not None)
        inside = {mark for mark in (system, self._header, *rungs) if mark < end}
        marks = self._marks = sorted(mark for mark in inside if mark > position)
        last = self._header if self._header < len(self.prompt) else None
        slices = self.decoder.prefill(self.prompt[position:], marks, last)
        while True:
            yield None
            done = next(slices, None)
            if done is None:
                return None
            self._emit(Progress("reading", position + done, len(self.prompt)))
            if self.decoder.state.position in marks:
                self._loan.session.checkpoints.append(Checkpoint.of(self.decoder.state))
            if not self.decoder.state.is_finite():
                self._saving = iter(())  # the answer will fail, and nothing of it may be kept
            while self._save_block():
                pass
            if self._cancelled():
                return "interrupted"

    def keep(self) -> None:
        """Make the state whole and hand it on, with the answer as the model made it."""
        assert self.sequel is not None, "run comes first"
        session, state = self._loan.session, self.decoder.state
        with self._keeper.not_lost(self._loan, self._request.cache):
            if self.answer.stopped:
                self.decoder.rewind(len(self.sequel.line))
            self.decoder.settle()
            if state.position == 0:
                return
            session.checkpoints.append(Checkpoint.of(state))
            if self.sequel.known:
                session.turns.append(self.sequel.known)
            tip = session.deepest(self.sequel.tip) if self._request.persist else None
        self._keeper.give_back(session, tip, self._request.cache, self._roles)

    def _pointer(self, sequel: Sequel) -> str | None:
        if not self._request.persist or not self.emitted:
            return None
        tip = sequel.line[: sequel.tip]
        return self._keeper.pointer(tip, self.decoder.state, self._request.cache)

    def _miss_reason(self) -> Reason | None:
        reason = self._taken.reason
        answered = any(message["role"] == "assistant" for message in self._request.messages)
        if reason == Reason.NOTHING_STORED and answered and self.sequel is not None:
            # Known only now that there are rows to weigh.
            return self._keeper.why_not_stored(self.decoder.state, self.sequel.last_tip)
        return reason

    def drop_answer(self) -> None:
        """Nobody takes the answer: keep what was read of the prompt alone."""
        checkpoints = self._loan.session.checkpoints
        latest = checkpoints[-1] if checkpoints else None
        self._keeper.put_back(self._loan, self._request.cache, latest)

    def _end_thinking(self) -> list[int]:
        """The tokens that close the think block once its budget is spent; else none."""
        if self._thinking_left() > 0:
            return []
        closing = self.model.tokenizer.encode(self.answer.end_of_thinking)
        closing = closing[: self._room - self.answer.tokens]
        self.decoder.force(closing)
        return closing

    def _thinking_left(self) -> float:
        """Tokens of the thinking budget."""
        budget = self._request.thinking_budget
        if budget is None or not self.answer.in_reasoning:
            return math.inf
        return budget - self.answer.reasoning_tokens

    def _round(self) -> Steps[list[int]]:
        counts = self._counts
        if self._request.stop:
            # A stop string may begin in any token that is not wholly shown yet.
            self.decoder.hold = len(self.prompt) + self.answer.whole_tokens
        # A round must not run past the thinking budget: ids do not depend on the depth.
        room = min(self._room - self.answer.tokens, self._thinking_left())
        if counts.plain_once:
            room = 1  # nothing is begun after it that a draft would undo
        ends = self.model.eos_ids.__contains__
        sent = yield Plan(counts.next_depth, int(room), ends, counts.copies_in(1))
        assert sent is not None
        done, seconds = sent
        was_useless = counts.useless
        counts.add(done, seconds)
        if counts.useless and not was_useless:
            self._emit(
                Notice(
                    f"the last {USELESS_DRAFTS} drafts of the MTP head were all wrong; "
                    "this answer continues without drafts."
                )
            )
        return done.tokens

    def _take(self, tokens: list[int]) -> FinishReason | None:
        """Show newly emitted tokens; returns why the answer ends here, if it does."""
        self.emitted += tokens
        ended = tokens[-1] in self.model.eos_ids
        before = self.answer.cycles.seen
        self._show(self.answer.add(tokens[:-1] if ended else tokens))
        if self.answer.cycles.seen is not before:
            self._emit(
                Notice(
                    f"the answer repeats itself ({self.answer.cycles.seen} so far); stop it, or "
                    "ask again with another prompt or -o repetition_penalty 1.1."
                )
            )
        if self.answer.stopped:
            return "stop"
        if ended:
            self.answer.end()
            return "eos"
        if self.answer.tokens >= self._room:
            return "length"
        return "interrupted" if self._cancelled() else None

    def _show(self, parts: Iterable[Part]) -> None:
        for event in events_of(
            parts, self.emitted, self.decoder.logprobs, self.model.tokenizer.token_bytes
        ):
            self._emit(event)
