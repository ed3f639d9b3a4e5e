"""Reading a fleet file: every problem in it told at once, and where it is."""

from pathlib import Path

from msgspec import structs

from controlplane.fleet.checks import contradictions
from controlplane.fleet.spec import Fleet
from runtime.errors import UserError
from runtime.paths import placed
from runtime.yaml_files import yaml_file


def read_fleet(path: Path) -> Fleet:
    try:
        fleet = yaml_file(path, Fleet, checks=contradictions)
    except UserError as error:
        hint = error.hint or "docs/fleet.md describes every key; examples/fleet-gke.yaml is a whole one"
        raise UserError(error.sentence, hint, error.problems) from None
    credentials = fleet.cloud.credentials
    if credentials is None:
        return fleet
    found = placed(credentials, path.resolve().parent, "cloud.credentials")
    return structs.replace(fleet, cloud=structs.replace(fleet.cloud, credentials=str(found)))
