"""The bundled demo model, and everything that made it."""

from pathlib import Path

MODEL_DIR = Path(__file__).parent / "model"
