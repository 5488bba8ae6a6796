"""``llm mtplx serve | stop``: an engine that stays loaded."""

import asyncio
import contextlib
import os
import signal
import time
from importlib.util import find_spec

import click
from click.core import ParameterSource

from ..errors import MtplxError
from ..limits import parse_seconds

PORT = 8642
STOP_S = 10.0


def _seconds(ctx: click.Context, option: click.Parameter, value: str) -> float:
    seconds = parse_seconds(value)
    if not isinstance(seconds, float):
        raise click.BadParameter(f"{value!r} is not a valid duration; use e.g. 90s, 10m or 2h.")
    return seconds


@click.command()
@click.option(
    "--host",
    default="127.0.0.1",
    help="Address to listen on; any other than the default requires an API key",
    show_default=True,
)
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True)
@click.option("--http/--no-http", default=True, help="Serve API clients as well as llm")
@click.option("--require-key", is_flag=True, help="Require the API key from local clients, too")
@click.option(
    "hosts",
    "--allow-host",
    multiple=True,
    help="Another host name that clients may use for this machine",
)
@click.option(
    "--max-waiting",
    type=click.IntRange(min=1),
    default=64,
    help="Maximum number of queued requests",
    show_default=True,
)
@click.option(
    "--parallel",
    type=click.IntRange(1, 64),
    default=4,
    help="Requests that are answered at once, as far as memory allows",
    show_default=True,
)
@click.option(
    "--timeout",
    callback=_seconds,
    default="0",
    help="Time limit per API response, including time in the queue (0: none)",
    show_default=True,
)
@click.option(
    "--unload-after",
    callback=_seconds,
    default="1h",
    help="Unload models not used for this long (0: never)",
    show_default=True,
)
@click.option(
    "--keep-alive",
    callback=_seconds,
    default="0",
    help="Exit after this long without requests (0: never)",
    show_default=True,
)
@click.option("--detach", is_flag=True, help="Run in the background")
@click.option(
    "--print-service",
    type=click.Choice(["launchd", "systemd"]),
    help="Print a service file and exit",
)
@click.pass_context
def serve(
    ctx: click.Context,
    host: str,
    port: int,
    http: bool,
    require_key: bool,
    hosts: tuple[str, ...],
    max_waiting: int,
    parallel: int,
    timeout: float,
    unload_after: float,
    keep_alive: float,
    detach: bool,
    print_service: str | None,
) -> None:
    """Keep models loaded for llm, and serve API clients

    Clients use the OpenAI or the Anthropic API. llm finds a running engine automatically and then
    loads no model itself.
    """
    if http and (find_spec("starlette") is None or find_spec("uvicorn") is None):
        if ctx.get_parameter_source("http") is not ParameterSource.DEFAULT:
            raise MtplxError("Serving API clients needs: llm install 'llm-mtplx[server]'")
        click.echo("Serving llm only; API clients need: llm install 'llm-mtplx[server]'", err=True)
        http = False
    options = _options(ctx)
    if print_service:
        from ..attach.service_file import service_file

        if http:
            _make_key(host, require_key)  # here, not in the service's log
        click.echo(service_file(print_service, options))
        return
    if detach:
        from ..attach.launch import log_path, start_engine
        from ..attach.server import ALREADY, holder
        from ..attach.socket_path import socket_path

        if holder(socket_path()) is not None:
            raise MtplxError(ALREADY)
        if http:
            _make_key(host, require_key)
        told = start_engine(options)
        where = f" and listens at {told['address']}" if told["address"] else ""
        click.echo(f"The engine runs in the background{where}; its log is {log_path()}.")
        return
    from ..attach.lifetime import reside
    from ..attach.server import Place
    from ..engine.engine import shared_engine

    extra = address = None
    place = Place()
    shared_engine().parallel = parallel
    try:
        if http:
            from ..server.run import Http

            _make_key(host, require_key)
            served = Http(shared_engine(), host, port, require_key, hosts, max_waiting, timeout)
            extra, address = served.run, served.address
        clients = f", and for API clients at {address}" if address else ""
        click.echo(f"Listening for llm{clients}. Press Ctrl-C to stop.")
    except BaseException:
        place.close()
        raise
    asyncio.run(
        reside(
            shared_engine(),
            place,
            address=address,
            keep_alive_s=keep_alive,
            unload_after_s=unload_after,
            extra=extra,
        )
    )


def _options(ctx: click.Context) -> list[str]:
    """The options as given, for a process that is to stay."""
    told: list[str] = []
    for option in ctx.command.params:
        assert isinstance(option, click.Option) and option.name
        given = ctx.get_parameter_source(option.name) is not ParameterSource.DEFAULT
        if not given or option.name in ("detach", "print_service"):
            continue
        value = ctx.params[option.name]
        if option.is_flag:
            told.append(option.opts[0] if value else option.secondary_opts[0])
        else:
            for each in value if isinstance(value, tuple) else (value,):
                told += [option.opts[0], str(each)]
    return told


def _make_key(host: str, require_key: bool) -> None:
    from ..server.keys import is_loopback, make_key

    if require_key or not is_loopback(host):
        made = make_key()
        if made:
            click.echo(f"Your API key (shown only once): {made}", err=True)


@click.command()
def stop() -> None:
    "Stop the engine that is running in the background"
    from ..attach.client import NoEngine, ask
    from ..attach.server import holder
    from ..attach.socket_path import socket_path

    pid = holder(socket_path())
    if pid is None:
        raise MtplxError("No engine is running.")
    with contextlib.suppress(NoEngine):
        ask("stop")
    if not _ended(pid):
        # It does not listen any more.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        if not _ended(pid):
            raise MtplxError(f"The engine does not stop. Kill its process with: kill -9 {pid}")
    click.echo("The engine has stopped.")


def _ended(pid: int) -> bool:
    from ..attach.server import holder
    from ..attach.socket_path import socket_path

    deadline = time.monotonic() + STOP_S
    while holder(socket_path()) == pid:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
