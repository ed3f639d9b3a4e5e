"""Reads a job file: YAML to a `JobSpec`. All problems are reported at once, with their places.

A relative `workdir` starts at the job file's folder, which is also the default workdir. A relative `script` starts at
the workdir.
"""

from pathlib import Path

from msgspec import structs

from messages.jobs import JobSpec, contradictions
from runtime import paths
from runtime.errors import UserError
from runtime.yaml_files import yaml_file


def read_job(path: Path, command: str = "submit") -> JobSpec:
    try:
        spec = yaml_file(path, JobSpec, checks=contradictions, thorough=True)
    except UserError as error:
        hint = error.hint or f"correct it, then `tradewind {command} {path}`"
        raise UserError(error.message, hint, error.problems) from None
    return placed(spec, path.resolve().parent)


def placed(spec: JobSpec, folder: Path) -> JobSpec:
    """The spec with an absolute workdir, and `~` expanded in the path of checkpoints."""
    workdir = paths.placed(spec.launch.workdir or ".", folder, "launch.workdir")
    path = spec.launch.checkpoint_path
    if path is not None:
        path = str(paths.expanded(path, "launch.checkpoint_path"))
    return structs.replace(spec, launch=structs.replace(spec.launch, workdir=str(workdir), checkpoint_path=path))
