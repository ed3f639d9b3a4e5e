"""The demonstration: a real small model trains through losses and joins, and every claim about it is checked."""

from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = EXAMPLES / "char_transformer" / "train.py"
FLEET = EXAMPLES / "fleet-simulator.yaml"
