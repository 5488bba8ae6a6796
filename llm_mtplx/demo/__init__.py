"""The bundled demo model, made by `tools/demo_model`."""

from pathlib import Path

MODEL_DIR = Path(__file__).parent / "model"
