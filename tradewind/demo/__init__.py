"""The demonstration: a small model trains through losses and joins, and each claim about it is checked."""

from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = EXAMPLES / "char_transformer" / "train.py"
FLEET = EXAMPLES / "fleet-simulator.yaml"
