"""Runs a script as it stands, whose pauses are as long as it wants while the file HOLD is there, and none afterwards.

`held.py HOLD SCRIPT ARGUMENTS…`
"""

import runpy
import sys
import time
from pathlib import Path

_, hold, script, *arguments = sys.argv
sleep = time.sleep


def held(seconds: float) -> None:
    sleep(seconds if Path(hold).exists() else 0.0)


vars(time)["sleep"] = held
sys.argv = [script, *arguments]
runpy.run_path(script, run_name="__main__")
