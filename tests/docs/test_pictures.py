"""Check that the picture in the README is drawn from its recording and shows nothing of the recording machine."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "pictures"
SCRIPT = runpy.run_path(str(FOLDER / "render.py"))
PICTURE = (FOLDER / "demo.svg").read_text()
RECORDING = (FOLDER / "demo.ansi").read_text()


def test_the_script_draws_the_committed_picture_from_the_committed_recording() -> None:
    assert SCRIPT["drawn"](RECORDING) == PICTURE


def test_another_recording_gives_another_picture() -> None:
    assert SCRIPT["drawn"](RECORDING.replace("certificate", "receipt")) != PICTURE


def test_the_excerpt_has_the_last_drawing_with_an_alert_and_the_start_of_the_report() -> None:
    clear, alert = "\r\x1b[2K\x1b[1A\x1b[2K", SCRIPT["ALERT"]
    drawings = ["one", f"two {alert}preempted\x1b[0m  ", f"three {alert}hung\x1b[0m", "four"]
    report = "\nTABLE\nrow\n\nsteps\npause\ncertificate\ncost\n\nchecks\n"

    made = SCRIPT["excerpt"](clear.join(["start\r\n", *drawings, report]))

    assert made == f"three {alert}hung\x1b[0m\n\nTABLE\nrow\n\nsteps\npause\ncertificate\n"


def test_the_picture_loads_nothing_and_names_no_folder_of_a_machine() -> None:
    assert set(re.findall(r"https?://[^\s\"'<)]+", PICTURE)) == {"http://www.w3.org/2000/svg"}
    assert re.search(r"@import|@font-face|/(?:home|root|tmp|work|Users)/", PICTURE + RECORDING) is None


def test_the_readme_shows_the_picture() -> None:
    assert "(docs/pictures/demo.svg)" in (ROOT / "README.md").read_text()
