"""The bundled demo model. `tools/demo_model` made it."""

from pathlib import Path

MODEL_DIR = Path(__file__).parent / "model"
