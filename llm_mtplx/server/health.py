"""GET /health: what runs, what is remembered, and what it was good for. Waits for nobody."""

import asyncio
import time
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from ..coldstore import ColdStore
from ..engine.engine import Engine
from ..engine.pace import STEP_S
from ..engine.status import engine_status
from ..sessions.budgets import store_limits
from ..sessions.groups import ssd_session_cache
from ..settings import cache_dir
from .gateway import Gateway

STORE_S = 10.0  # the disk is asked no more often
FIRST_S = 0.05  # and waited for no longer, where nothing is known of it yet


class Health:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._store: dict[str, Any] = {}
        self._asked = -STORE_S
        self._asking: asyncio.Task[None] | None = None

    async def report(self) -> dict[str, Any]:
        if time.monotonic() - self._asked >= STORE_S:
            self._asked = time.monotonic()
            self._asking = asyncio.create_task(self._ask_store())
        if self._asking is not None and not self._store:
            await asyncio.wait([self._asking], timeout=FIRST_S)
        return {
            "status": "ok",
            **engine_status(self._engine),
            "ssd_session_cache": self._store,
        }

    async def _ask_store(self) -> None:
        self._store = await asyncio.to_thread(_store_report)


def _store_report() -> dict[str, Any]:
    try:
        report = ColdStore(cache_dir(), store_limits()).report()
    except Exception as error:  # what the disk holds may be anything
        return {"restorable": False, "last_error": repr(error)}
    return {**ssd_session_cache(report), "entries": len(report.conversations)}


async def health(http: HttpRequest) -> Response:
    told: Health = http.app.state.health
    return JSONResponse(await told.report())


async def recent(http: HttpRequest) -> Response:
    """What the page at / shows."""
    gateway: Gateway = http.app.state.gateway
    told: Health = http.app.state.health
    observer = gateway.engine.observer
    return JSONResponse(
        {
            **await told.report(),
            "recent": observer.recent,
            "pace": {"step_s": STEP_S, **observer.pace.series(time.monotonic())},
            "drafted": [observer.totals.drafted[at] for at in sorted(observer.totals.drafted)],
            "accepted": [observer.totals.accepted[at] for at in sorted(observer.totals.drafted)],
            "restored": dict(observer.totals.restored),
            "prompt_tokens": observer.totals.prompt_tokens,
        }
    )
