"""The limits that hold, from the environment and the settings file. Read when used.

Every limit is an environment variable, ``LLM_MTPLX_`` and the field's name, or a key of the JSON
object in ``mtplx/settings.json`` in llm's user directory; the environment wins. A value that is
none is passed over with a warning: a bad setting breaks no command.
"""

import json
import logging
import os
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from .settings import PREFIX, settings_path

if TYPE_CHECKING:
    from .coldstore import StoreLimits

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
DURATIONS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}

logger = logging.getLogger(__name__)


def parse_size(value: Any) -> Any:
    """``24G`` and the like, as bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", str(value).strip(), re.IGNORECASE)
    return int(float(match[1]) * UNITS[match[2].upper()]) if match else value


def parse_seconds(value: Any) -> Any:
    """``10m`` and the like, as seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", str(value).strip().lower())
    return float(match[1]) * DURATIONS[match[2]] if match else value


Seconds = Annotated[float, BeforeValidator(parse_seconds), Field(ge=0)]
Bytes = Annotated[int, BeforeValidator(parse_size), Field(ge=0)]


class Limits(BaseModel):
    cache: Literal["on", "off"] = Field("on", description="Whether anything is kept on SSD")
    min_tokens: int | None = Field(
        None, ge=1, description="Shortest conversation kept on SSD, in tokens"
    )
    cache_max_size: Bytes | None = Field(None, description="Bytes that may be kept on SSD")
    write_budget_per_hour: Bytes = Field(
        128 << 30, description="Bytes that may be written to the SSD in an hour"
    )
    backlog_bytes: Bytes = Field(4 << 30, description="Bytes that may wait to be written")
    exit_save_s: float = Field(
        3.0, ge=0, description="Seconds a process waits at its end for its last writes"
    )
    ram_max_bytes: Bytes | None = Field(None, description="RAM for all sessions")
    ram_per_session_bytes: Bytes | None = Field(None, description="RAM for one session")
    ram_max_entries: int | None = Field(None, ge=1, description="Sessions kept in RAM")
    idle_ttl_s: float = Field(
        3600, ge=0, description="Seconds an unused session stays in RAM; 0 is for ever"
    )
    active_pin_ttl_s: float = Field(
        600, ge=0, description="Seconds a session over its RAM budget stays after its last turn"
    )
    keep_alive: Seconds = Field(
        0,
        description="How long the first call's engine stays for the next ones, as `10m`; 0 is off",
    )


def limits() -> Limits:
    told = {**_from_file(), **_from_environment()}
    while True:
        try:
            return Limits(**told)
        except ValidationError as error:
            for problem in error.errors():
                name = str(problem["loc"][0])
                logger.warning("%s%s: %s", PREFIX, name.upper(), problem["msg"])
                told.pop(name, None)


def store_limits() -> "StoreLimits":
    from .coldstore import StoreLimits  # who asks a resident engine needs no store

    told = limits()
    return StoreLimits(
        max_bytes=told.cache_max_size,
        write_budget_bytes=told.write_budget_per_hour,
        backlog_bytes=told.backlog_bytes,
    )


def _from_environment() -> dict[str, Any]:
    names = {PREFIX + name.upper(): name for name in Limits.model_fields}
    return {names[key]: value for key, value in os.environ.items() if key in names and value}


def _from_file() -> dict[str, Any]:
    path = settings_path()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("it holds no JSON object")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        logger.warning("%s cannot be read: %s", path, error)
        return {}
    return {name: value for name, value in content.items() if name in Limits.model_fields}
