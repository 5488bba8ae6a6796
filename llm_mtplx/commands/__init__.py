"""``llm mtplx ...``"""

import click

from .doctor import doctor
from .models import add, models, remove


@click.group()
def mtplx() -> None:
    "Qwen models on MLX with their own multi-token prediction heads"


for command in (add, doctor, models, remove):
    mtplx.add_command(command)
