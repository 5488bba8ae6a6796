"""Training: the trunk with its head, then the head alone against the finished trunk."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from tools.demo_model.conversations import Grammar
from tools.demo_model.muon import Muon
from tools.demo_model.network import DemoModel, document_mask
from tools.demo_model.packing import Rows, batches
from tools.demo_model.tokenizer import letter_pieces

SEED = 20
DEPTH_WEIGHTS = (0.3, 0.2, 0.15)


@dataclass(frozen=True)
class Plan:
    """How long and how fast. A stage ends at its tokens or its minutes, whichever comes first."""

    tokens: int = 9_000_000
    minutes: float = 52.0
    drill_tokens: int = 1_600_000
    drill_minutes: float = 8.5
    head_tokens: int = 1_400_000
    head_minutes: float = 6.0
    batch_tokens: int = 4096
    row: int = 512
    long_row: int = 2048
    long_every: int = 12
    matrix_lr: float = 0.02
    vector_lr: float = 0.006
    late_rate: float = 0.4  # of those, in the drill and for the head alone
    drill_share: float = 0.5
    warmup_steps: int = 60
    cooldown: float = 0.5
    head_from: float = 0.4
    chain_from: float = 0.85
    context_share: float = 0.1  # of the tokens that are given, not generated, to learn from


@dataclass
class Batch:
    ids: Tensor
    document: Tensor
    position: Tensor
    mask: Tensor
    answer: Tensor

    @classmethod
    def of(cls, rows: Rows) -> Batch:
        document = torch.from_numpy(rows.document)
        return cls(
            torch.from_numpy(rows.ids),
            document,
            torch.from_numpy(rows.position),
            document_mask(document),
            torch.from_numpy(rows.answer),
        )

    def targets(self, ahead: int, context: Tensor) -> tuple[Tensor, Tensor]:
        """Flat columns whose token `ahead` steps on is learned, and those tokens."""
        length = self.ids.shape[1]
        columns = torch.arange(length - ahead)
        wanted = (self.answer | context)[:, ahead:]
        same = (self.document[:, ahead:] == self.document[:, :-ahead]) & (
            self.document[:, ahead:] >= 0
        )
        rows, cols = (wanted & same).nonzero(as_tuple=True)
        return rows * length + columns[cols], self.ids[rows, cols + ahead]


def schedule(progress: float, step: int, plan: Plan) -> float:
    """Warm up, hold, then fall linearly to zero."""
    rise = min(1.0, (step + 1) / plan.warmup_steps)
    return rise * min(1.0, max(0.0, (1.0 - progress) / plan.cooldown))


class Trainer:
    def __init__(self, model: DemoModel, tokenizer: Tokenizer, plan: Plan, folder: Path) -> None:
        self.model, self.tokenizer, self.plan, self.folder = model, tokenizer, plan, folder
        self.noise = np.random.default_rng(SEED)
        self.stages: dict[str, dict[str, float]] = {}

    def _mix(self, seed: int, drill: float) -> Iterator[Batch]:
        plan, tokenizer, pieces = self.plan, self.tokenizer, letter_pieces(self.tokenizer)
        short = batches(Grammar(seed, pieces, drill), tokenizer, plan.row, plan.batch_tokens)
        long = batches(
            Grammar(seed + 1, pieces),
            tokenizer,
            plan.long_row,
            plan.batch_tokens,
            pool=40,
            long=True,
        )
        for step in itertools.count():
            yield Batch.of(next(long if step % plan.long_every == plan.long_every - 1 else short))

    def _optimizers(
        self, parameters: list[nn.Parameter], rate: float
    ) -> list[torch.optim.Optimizer]:
        embedding = self.model.embed_tokens.weight
        matrices = [p for p in parameters if p.ndim == 2 and p is not embedding]
        others = [p for p in parameters if p.ndim != 2 or p is embedding]
        muon = Muon(matrices, lr=self.plan.matrix_lr)
        adam = torch.optim.AdamW(
            others, lr=self.plan.vector_lr, betas=(0.9, 0.98), weight_decay=0.0
        )
        optimizers = [muon, adam]
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["peak"] = group["lr"] * rate
        return optimizers

    def _context(self, batch: Batch) -> Tensor:
        share = self.plan.context_share
        return torch.from_numpy(self.noise.random(batch.ids.shape) < share)

    def _pick(self, hidden: Tensor, where: Tensor) -> Tensor:
        return self.model.logits(hidden.reshape(-1, hidden.shape[-1])[where]).float()

    def joint_loss(self, batch: Batch, progress: float) -> Tensor:
        plan, model = self.plan, self.model
        depth = 3 if progress >= plan.chain_from else 1 if progress >= plan.head_from else 0
        context = self._context(batch)
        hidden = model.trunk(batch.ids, batch.document, batch.position, batch.mask)
        where, target = batch.targets(1, context)
        loss = F.cross_entropy(self._pick(hidden, where), target)
        self.shown = [loss.item()]
        if depth:
            rows = model.draft(batch.ids, hidden, batch.position, batch.mask, depth)
            for ahead, row, weight in zip(itertools.count(2), rows, DEPTH_WEIGHTS, strict=False):
                where, target = batch.targets(ahead, context)
                part = F.cross_entropy(self._pick(row, where), target)
                self.shown.append(part.item())
                loss = loss + weight * part
        return loss

    def drill_loss(self, batch: Batch, progress: float) -> Tensor:
        return self.joint_loss(batch, self.plan.head_from)  # the head at depth 1 throughout

    def head_loss(self, batch: Batch, progress: float) -> Tensor:
        """KL of the head's drafts to what the trunk itself says at those positions."""
        model = self.model
        nothing = torch.zeros_like(batch.answer)
        with torch.no_grad():
            hidden = model.trunk(batch.ids, batch.document, batch.position, batch.mask)
        rows = model.draft(batch.ids, hidden, batch.position, batch.mask, 3)
        total = torch.zeros(())
        self.shown = []
        for depth, row in enumerate(rows, 1):
            where, _ = batch.targets(depth + 1, nothing)
            with torch.no_grad():
                teacher = self._pick(hidden, where + depth).log_softmax(-1)
            student = self._pick(row, where).log_softmax(-1)
            part = (teacher.exp() * (teacher - student)).sum(-1).mean()
            self.shown.append((student.argmax(-1) == teacher.argmax(-1)).float().mean().item())
            total = total + part
        return total

    def run(
        self,
        name: str,
        parameters: list[nn.Parameter],
        loss: Callable[[Batch, float], Tensor],
        tokens: int,
        minutes: float,
        mix: Iterator[Batch],
        rate: float = 1.0,
    ) -> None:
        optimizers = self._optimizers(parameters, rate)
        begun, seen, step, progress = time.monotonic(), 0, 0, 0.0
        saved = begun
        while progress < 1.0:
            height = schedule(progress, step, self.plan)
            batch = next(mix)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                value = loss(batch, progress)
            value.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = group["peak"] * height
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            step, seen = step + 1, seen + batch.ids.numel()
            now = time.monotonic()
            progress = max(seen / tokens, (now - begun) / 60 / minutes)
            if step % 20 == 0 or progress >= 1.0:
                speed = seen / (now - begun)
                shown = " ".join(f"{x:.4f}" for x in self.shown)
                print(f"{name} {step} {progress:.3f} {speed:.0f} tok/s  {shown}", flush=True)
            if now - saved > 300:
                self.save()
                saved = now
        spent = time.monotonic() - begun
        self.stages[name] = {"seconds": round(spent, 1), "tokens": seen, "steps": step}
        self.save()

    def save(self) -> None:
        part = self.folder / "checkpoint.part"
        torch.save(self.model.state_dict(), part)
        part.replace(self.folder / "checkpoint.pt")

    def train(self) -> None:
        plan = self.plan
        everything = list(self.model.parameters())
        mix = self._mix(SEED, 0.0)
        self.run("joint", everything, self.joint_loss, plan.tokens, plan.minutes, mix)
        self.finish()

    def finish(self) -> None:
        """Practice of what is learned last, then the head alone."""
        model, plan = self.model, self.plan
        everything = list(model.parameters())
        mix, rate = self._mix(SEED + 10, plan.drill_share), plan.late_rate
        tokens, minutes = plan.drill_tokens, plan.drill_minutes
        self.run("drill", everything, self.drill_loss, tokens, minutes, mix, rate)
        for parameter in everything:
            parameter.requires_grad_(False)
        head = list(model.mtp.parameters())
        for parameter in head:
            parameter.requires_grad_(True)
        mix = self._mix(SEED + 20, plan.drill_share / 2)
        self.run("head", head, self.head_loss, plan.head_tokens, plan.head_minutes, mix, rate)
        (self.folder / "stages.json").write_text(json.dumps(self.stages, indent=2) + "\n")
