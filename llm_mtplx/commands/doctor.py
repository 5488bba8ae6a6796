"""``llm mtplx doctor``: is this installation able to answer?"""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ..catalog import fit, footprint, machine
from ..catalog.entries import DEMO_ID, Entry, entry_named
from ..catalog.folder import ModelFolder, inspect
from ..coldstore import ColdStore
from ..demo import MODEL_DIR
from ..engine.budgets import bank_limits
from ..errors import MtplxError
from ..sessions.budgets import store_limits
from ..sessions.groups import ssd_session_cache
from ..settings import cache_dir
from ..terminal import notice
from .advice import advice
from .status import resident_engine, size

if TYPE_CHECKING:
    from ..engine.load import LoadedModel
    from ..engine.tuned import Record
    from ..measure.verify import Verified

QUESTION = "What is the capital of France?"


@click.command()
@click.option(
    "verify_", "--verify", is_flag=True, help="Compare cold, restored and undrafted answers"
)
@click.option("model", "-m", "--model", default=DEMO_ID, help="Model to report on and verify")
@click.option("json_", "--json", is_flag=True, help="Print JSON")
def doctor(verify_: bool, model: str, json_: bool) -> None:
    """Check this installation, and that the demo model answers

    Reports versions, backend, memory, limits and the store. With --verify, MODEL answers one
    question from scratch, continued from RAM and from disk, and without drafts, and the token ids
    are compared. Where they differ, the gap between the two most likely tokens distinguishes a
    near-tie, which rounding can decide, from a fault.
    """
    from ..engine.engine import shared_engine

    entry, engine = entry_named(model), shared_engine()
    folder = inspect(entry.path)

    def told() -> dict[str, Any]:
        from ..architectures.runtime import facts, memory_limits
        from ..engine.tuned import recorded

        limits = memory_limits()
        about = _model(entry, folder, recorded(folder))
        return {**facts(), "memory_limits": limits, "model": about}

    report = engine.call(told)
    report["store"] = _store()
    report["engine"] = _engine()
    report["advice"] = advice(report)
    report["demo"] = _ask_demo()
    verified = engine.run_with(entry.path, _verified, notice) if verify_ else None
    if verified is not None:
        report["verify"] = {"model": model, "holds": verified.holds, **asdict(verified)}
    if json_:
        click.echo(json.dumps(report, indent=2))
    else:
        _print(report)
    if report["demo"]["problem"]:
        raise MtplxError(report["demo"]["problem"])
    if verified is not None and not verified.holds:
        raise MtplxError(
            f"{model} gives a different answer from a restored state. Please report this "
            "with the output of 'llm mtplx doctor --verify --json'; until it is fixed, "
            "use '-o cache off'."
        )


def _verified(model: "LoadedModel") -> "Verified":
    from ..measure.verify import verify

    return verify(model)


def _model(entry: Entry, folder: ModelFolder, tuned: "Record | None") -> dict[str, Any]:
    """What the memory plan gives a model that is loaded alone."""
    needs = footprint.of_folder(folder)
    plan, bank = fit.plan(machine.memory_bytes(), needs), bank_limits([needs])
    return {
        "id": entry.model_id,
        "head": folder.head is not None,
        "tuned_depth": None if tuned is None else tuned.depth,
        "adaptive": tuned is not None and tuned.costs is not None,
        "weights_bytes": needs.weights,
        "envelope_bytes": plan.envelope,
        "fits": plan.fits,
        "context_window": plan.window,
        "sessions_bytes": bank.total_bytes,
        "session_bytes": bank.per_session_bytes,
        "sessions": bank.entries,
    }


def _store() -> dict[str, Any]:
    told = ssd_session_cache(ColdStore(cache_dir(), store_limits()).report())
    # A report that is passed on names no path.
    return {name: value for name, value in told.items() if name not in ("dir", "limits")}


def _engine() -> dict[str, Any] | None:
    told = resident_engine()
    if told is None:
        return None
    engine = told["engine"]
    models = [each["id"] for each in engine["models"]]
    return {"pid": told["pid"], "idle_s": engine["idle_s"], "models": models}


def _ask_demo() -> dict[str, Any]:
    from ..engine.engine import shared_engine
    from ..protocol import Finished, Request, Text

    request = Request(
        DEMO_ID,
        MODEL_DIR,
        [{"role": "user", "content": QUESTION}],
        cache="off",
        persist=False,
        temperature=0,
        max_tokens=64,
    )
    report: dict[str, Any] = {"question": QUESTION, "answer": "", "problem": None}
    try:
        for event in shared_engine().stream(request):
            if isinstance(event, Text):
                report["answer"] += event.text
            elif isinstance(event, Finished):
                report["tokens"] = event.output_tokens
                report["rounds"] = event.rounds
                report["drafted"] = event.drafted
                report["accepted"] = event.accepted
    except MtplxError as error:
        report["problem"] = f"The demo model does not answer: {error}"
    return report


def _print(report: dict[str, Any]) -> None:
    for name, number in report["versions"].items():
        _line(name, number)
    _line("system", report["system"])
    _line("backend", report["backend"])
    _line("BLAS", report["blas"])
    limits = report["memory_limits"]
    allowed = f"MLX may use {size(limits['mlx_limit_bytes'])}"
    if gpu := limits["gpu_working_set_bytes"]:
        allowed += f", the GPU {size(gpu)}"
    _line("memory", f"{size(report['memory_bytes'])}; {allowed}")
    _print_model(report["model"])
    _line("store", _store_words(report["store"]))
    engine = report["engine"]
    loaded = ", ".join(engine["models"]) or "nothing yet" if engine else ""
    _line("engine", f"process {engine['pid']}; loaded: {loaded}" if engine else "not running")
    for line in report["advice"]:
        _line("advice", line)
    demo = report["demo"]
    if not demo["problem"]:
        _line("demo", f"{demo['question']} {demo['answer']}")
        _line(
            "",
            f"{demo['tokens']} tokens in {demo['rounds']} rounds; drafts accepted "
            f"{sum(demo['accepted'])} of {sum(demo['drafted'])} examined",
        )
    if "verify" in report:
        _print_verified(report["verify"])


def _print_model(model: dict[str, Any]) -> None:
    depth = model["tuned_depth"]
    drafts = "not tuned" if depth is None else f"tuned: draft {depth}"
    if model["adaptive"]:
        drafts = "tuned: draft depth follows measured costs"
    _line(
        "model",
        f"{model['id']}: weights {size(model['weights_bytes'])} of "
        f"{size(model['envelope_bytes'])} available; "
        f"{drafts if model['head'] else 'no MTP head'}",
    )
    _line(
        "",
        f"context window {model['context_window']:,} tokens; RAM for {model['sessions']} "
        f"sessions: {size(model['sessions_bytes'])}, at most "
        f"{size(model['session_bytes'])} each",
    )


def _store_words(store: dict[str, Any]) -> str:
    if not store["enabled"]:
        return "turned off"
    if not store["restorable"]:
        return f"cannot be used now: {store['last_miss_reason']}"
    if store["last_miss_reason"] == "store_absent":
        return "nothing saved yet"
    words = (
        f"{size(store['physical_bytes'])} of {size(store['effective_max_bytes'])}; disk "
        f"{store['disk_state']}, {size(store['disk_free_bytes'])} free"
    )
    return f"{words}; not writing now: {why}" if (why := store["skips_writes"]) else words


def _line(name: str, text: str) -> None:
    click.echo(f"{name:10} {text}")


def _print_verified(verified: dict[str, Any]) -> None:
    prompt, answer = verified["prompt_tokens"], len(verified["cold"])
    _line("verify", f"{verified['model']}: {answer} tokens after a prompt of {prompt}")
    for way in verified["ways"]:
        said = "equal to the cold answer"
        if way["first_difference"] is not None:
            said = f"differs from token {way['first_difference']} on, top-2 gap {way['gap']:.1e}"
        restored = f"{way['restored']} restored, " if way["restored"] else ""
        _line("", f"{way['name']}: {restored}{said}")
    rows = "equal those of single rows, bit for bit"
    if not verified["rows_equal"]:
        rows = (
            f"differ from those of single rows by {verified['rows_difference']:.1e} of the "
            "largest logit"
        )
    _line("", f"logits of several rows at once {rows}")
