"""The limits that hold, from the environment and the settings file. Read when used.

Every limit is an environment variable, ``LLM_MTPLX_`` and the field's name, or a key of the JSON
object in ``mtplx/settings.json`` in llm's user directory; the environment wins. A value that is
not valid is passed over with one warning a process: a bad setting breaks no command.
"""

import difflib
import logging
import math
import os
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from . import jsonfile
from .once import first_time
from .settings import PREFIX, settings_path

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
DURATIONS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
MOST_BYTES = 1 << 60
MOST_SECONDS = 10 * 366 * 86_400.0  # the system's own waits take no more than some decades
MOST = 2**31 - 1

logger = logging.getLogger(__name__)


def parse_size(value: Any) -> Any:
    """``24G`` and the like, as bytes; what is not a size is returned as it is."""
    match = re.fullmatch(
        r"([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([KMGT]?)(?:i?B)?", str(value).strip(), re.IGNORECASE
    )
    if match is None or isinstance(value, bool):
        return value
    size = float(match[1]) * UNITS[match[2].upper()]
    return int(size) if size <= MOST_BYTES else value


def parse_seconds(value: Any) -> Any:
    """``10m`` and the like, as seconds; what is not a time is returned as it is."""
    match = re.fullmatch(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([smhd]?)", str(value).strip().lower())
    if match is None or isinstance(value, bool):
        return value
    seconds = float(match[1]) * DURATIONS[match[2]]
    return seconds if seconds <= MOST_SECONDS else value


def _bytes(value: Any) -> int:
    parsed = parse_size(value)
    if isinstance(parsed, float) and 0 <= parsed <= MOST_BYTES:
        return int(parsed)  # JSON's 1e21 and the like
    if isinstance(parsed, bool) or not isinstance(parsed, int) or not 0 <= parsed <= MOST_BYTES:
        raise ValueError(f"{_shown(value)} is not a valid size; use e.g. 500M or 24G")
    return parsed


def _seconds(value: Any) -> float:
    parsed = parse_seconds(value)
    if isinstance(parsed, str):
        try:
            parsed = float(parsed)  # 1e3, say
        except ValueError:
            parsed = math.nan
    numeric = isinstance(parsed, (int, float)) and not isinstance(parsed, bool)
    if not numeric or not 0 <= parsed <= MOST_SECONDS:
        raise ValueError(f"{_shown(value)} is not a valid time in seconds; use e.g. 30 or 10m")
    return float(parsed)


def _count(value: Any) -> int:
    try:
        parsed = int(value) if isinstance(value, str) else value
    except ValueError:
        parsed = None
    if isinstance(parsed, bool) or not isinstance(parsed, int) or not 1 <= parsed <= MOST:
        raise ValueError(f"{_shown(value)} is not valid; use a whole number from 1 to {MOST:,}")
    return parsed


def _on_or_off(value: Any) -> Any:
    if value not in ("on", "off"):
        raise ValueError(f"{_shown(value)} is not valid; use on or off")
    return value


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        text = "that number"
    return text if len(text) <= 40 else f"{text[:36]}..."


Bytes = Annotated[int, BeforeValidator(_bytes)]
Seconds = Annotated[float, BeforeValidator(_seconds)]
Count = Annotated[int, BeforeValidator(_count)]


class Limits(BaseModel):
    cache: Annotated[Literal["on", "off"], BeforeValidator(_on_or_off)] = Field(
        "on", description="Save conversation state on disk: on or off"
    )
    min_tokens: Count | None = Field(
        None, description="Shortest conversation saved to disk, in tokens"
    )
    cache_max_size: Bytes | None = Field(None, description="Maximum size of the store, in bytes")
    write_budget_per_hour: Bytes = Field(
        128 << 30, description="Maximum bytes written to disk per hour"
    )
    backlog_bytes: Bytes = Field(4 << 30, description="Maximum bytes waiting to be written")
    exit_save_s: Seconds = Field(
        3.0, description="Seconds a process waits at exit for its last writes"
    )
    ram_max_bytes: Bytes | None = Field(None, description="RAM for all sessions, in bytes")
    ram_per_session_bytes: Bytes | None = Field(None, description="RAM for one session, in bytes")
    ram_max_entries: Count | None = Field(None, description="Maximum number of sessions in RAM")
    idle_ttl_s: Seconds = Field(
        3600, description="Seconds an unused session stays in RAM; 0: no limit"
    )
    active_pin_ttl_s: Seconds = Field(
        600, description="Seconds a session over its RAM budget stays after its last turn"
    )
    keep_alive: Seconds = Field(
        0,
        description="How long the engine started by the first call runs without requests, e.g. "
        "`10m`; 0: off",
    )


def limits() -> Limits:
    environment, file = _from_environment(), _from_file()
    settings = {**file, **environment}
    problems: list[tuple[str, str, str]] = []  # field, where it was set, what is wrong with it
    while True:
        try:
            valid = Limits(**settings)
            break
        except ValidationError as error:
            for problem in error.errors(include_url=False, include_context=False):
                name, words = str(problem["loc"][0]), problem["msg"].removeprefix("Value error, ")
                if environment.pop(name, None) is not None:
                    problems.append((name, PREFIX + name.upper(), words))
                else:
                    file.pop(name, None)
                    problems.append((name, f"{settings_path()}, {name!r}", words))
            settings = {**file, **environment}
    for name, place, words in problems:
        kind = f"the one in {settings_path()}" if name in file else "the default"
        _warn(f"{place}: {words}. Using {kind}, {_spelled(name, getattr(valid, name))}.")
    return valid


def _warn(line: str) -> None:
    if first_time(line):
        logger.warning("mtplx: %s", line)


def _spelled(name: str, value: Any) -> str:
    """A setting's value as a user would write it."""
    if value is None:
        return (
            "which depends on the model" if name == "min_tokens" else "which depends on the machine"
        )
    if name.endswith(("_bytes", "_size", "_per_hour")):
        whole = [unit for unit, size in UNITS.items() if value and value % size == 0]
        return f"{value // UNITS[whole[-1]]}{whole[-1]}" if whole else str(value)
    return f"{value:g} s" if isinstance(value, float) else str(value)


def _from_environment() -> dict[str, Any]:
    names = {PREFIX + name.upper(): name for name in Limits.model_fields}
    return {names[key]: value for key, value in os.environ.items() if key in names and value}


def _from_file() -> dict[str, Any]:
    path = settings_path()
    try:
        content = jsonfile.read(path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        _warn(f"{path} cannot be read and is ignored: {error}")
        return {}
    unknown = [name for name in content if name not in Limits.model_fields]
    if unknown:
        names = ", ".join(
            f"{_shown(name)} (did you mean {_nearest(name)!r}?)" for name in unknown[:3]
        )
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        _warn(f"{path}: ignoring unknown settings: {names}{more}")
    return {name: value for name, value in content.items() if name in Limits.model_fields}


def _nearest(name: str) -> str:
    """The setting that ``name`` most resembles."""
    plain = name[:64].lower().removeprefix(PREFIX.lower()).replace("-", "_")
    return difflib.get_close_matches(plain, list(Limits.model_fields), n=1, cutoff=0.0)[0]
