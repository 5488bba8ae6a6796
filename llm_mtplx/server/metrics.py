"""GET /metrics, in the text format of Prometheus."""

from collections.abc import Iterable, Mapping
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response

from ..coldstore import Counters
from ..engine.engine import Engine
from ..engine.observe import Histogram
from .gateway import Gateway

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def metrics(http: HttpRequest) -> Response:
    gateway: Gateway = http.app.state.gateway
    return PlainTextResponse(exposition(gateway.engine), media_type=MEDIA_TYPE)


def exposition(engine: Engine) -> str:
    totals, memory = engine.observer.totals, engine.observer.memory
    bank = memory.get("session_bank", {})
    models = [(_label("model", model["id"]), model["bytes"]) for model in memory.get("models", [])]
    restored = "Prompt tokens restored from the cache, by source"
    missed = "Turns that could not restore more, by reason"
    saves = engine.saves or Counters()
    running = len(engine.observer.running)
    lines = [
        *_counter("turns", "Turns, by finish reason", _by("end", totals.turns)),
        *_counter("prompt_tokens", "Prompt tokens", totals.prompt_tokens),
        *_counter("restored_tokens", restored, _by("source", totals.restored)),
        *_counter("output_tokens", "Tokens made", totals.output_tokens),
        *_counter("prefill_seconds", "Seconds spent on prefill", totals.prefill_s),
        *_counter("decode_seconds", "Seconds spent decoding", totals.decode_s),
        *_counter("rounds", "Verify passes", totals.rounds),
        *_counter(
            "drafts_examined", "Draft tokens examined, by position", _by("position", totals.drafted)
        ),
        *_counter(
            "drafts_accepted",
            "Draft tokens accepted, by position",
            _by("position", totals.accepted),
        ),
        *_counter("cache_misses", missed, _by("reason", totals.missed)),
        *_counter("turns_not_kept", "Turns whose state was lost", totals.not_kept),
        *_counter("saves_failed", "Saves not written, by reason", _by("reason", saves.drops)),
        *_counter("reads_failed", "Files not read, by reason", _by("reason", saves.misses)),
        *_counter("written_bytes", "Bytes written to disk", saves.written_bytes),
        *_histogram(
            "time_to_first_token",
            "Seconds from the start of a turn to its first token",
            totals.ttft,
        ),
        *_histogram("time_between_tokens", "Seconds between parts of an answer", totals.gaps),
        *_gauge("requests_waiting", "Requests in the queue", engine.waiting),
        *_gauge("requests_running", "Requests being answered", running),
        *_gauge("model_bytes", "Weights of loaded models", models),
        *_gauge("sessions", "Sessions in RAM", bank.get("entries", 0)),
        *_gauge("session_bytes", "Bytes of sessions in RAM", bank.get("total_nbytes", 0)),
    ]
    return "\n".join(lines) + "\n"


def _histogram(name: str, meaning: str, values: Histogram) -> Iterable[str]:
    name = f"mtplx_{name}_seconds"
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} histogram"
    count = 0
    for end in (*values.ends, float("inf")):
        count += values.counts[end]
        yield f'{name}_bucket{{le="{"+Inf" if end == float("inf") else end}"}} {count}'
    yield f"{name}_sum {values.total}"
    yield f"{name}_count {count}"


Values = float | list[tuple[str, float]]  # one, or one for each set of labels


def _counter(name: str, meaning: str, values: Values) -> Iterable[str]:
    return _metric(f"mtplx_{name}_total", "counter", meaning, values)


def _gauge(name: str, meaning: str, values: Values) -> Iterable[str]:
    return _metric(f"mtplx_{name}", "gauge", meaning, values)


def _metric(name: str, kind: str, meaning: str, values: Values) -> Iterable[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values if isinstance(values, list) else [("", values)]:
        yield f"{name}{labels} {value}"


def _by(label: str, counts: Mapping[Any, float]) -> list[tuple[str, float]]:
    return [(_label(label, key), value) for key, value in tuple(counts.items())]


def _label(name: str, value: Any) -> str:
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{{{name}="{escaped}"}}'
