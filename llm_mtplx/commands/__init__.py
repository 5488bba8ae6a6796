"""The `llm mtplx` commands, one file per group."""

import importlib

import click

# Name -> the module that defines it.
COMMANDS = {
    "add": "models",
    "bench": "bench",
    "count": "count",
    "doctor": "doctor",
    "download": "download",
    "forget": "status",
    "gc": "gc",
    "models": "models",
    "remove": "models",
    "serve": "serve",
    "status": "status",
    "stop": "serve",
    "tune": "tune",
    "warm": "warm",
}


class LazyGroup(click.Group):
    """Imports a command's module when it is asked for: every llm command pays for this group."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f".{COMMANDS[name]}", __name__)
        command: click.Command = getattr(module, name)
        return command


@click.group(cls=LazyGroup)
def mtplx() -> None:
    "Run Qwen models on MLX, sped up by their multi-token prediction (MTP) heads"
