"""The commands of gcloud, bq and docker that our scripts and pages use, with the flags that they take.

Other commands are refused, so that a typing mistake in a page or a script fails a test. The
commands of gcloud and their flags agree with version 528 of the SDK (`test_syntax.py`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

ANY = r".+"
NUMBER = r"\d+"
NAME = r"[a-z]([a-z0-9-]*[a-z0-9])?"
ZONE = r"[a-z]+-[a-z]+\d+-[a-z]"
REGION = r"[a-z]+-[a-z]+\d+"
PLACE = rf"{REGION}(-[a-z])?"
CIDRS = r"(\d+\.\d+\.\d+\.\d+/\d+)(,\d+\.\d+\.\d+\.\d+/\d+)*"
EMAIL = r"[^@\s]+@[^@\s]+"
SWITCH = ""
"""A flag without a value."""

_EVERYWHERE = {"--project": NAME, "--format": ANY, "--quiet": SWITCH}
_LIST = {"--filter": ANY, "--limit": NUMBER}
_POOL = {"--cluster": NAME, "--location": PLACE}


class Wrong(Exception):
    """A command that the real program would refuse."""


@dataclass(frozen=True, slots=True)
class Command:
    flags: Mapping[str, str] = field(default_factory=dict)
    positionals: tuple[str, ...] = ()
    """A pattern for each argument; with `more`, the last one may repeat."""
    needs: tuple[str, ...] = ()
    more: bool = False


GCLOUD: Mapping[str, Command] = {
    "auth login": Command(),
    "auth list": Command(_LIST),
    "auth application-default login": Command(),
    "auth application-default set-quota-project": Command(positionals=(NAME,)),
    "auth configure-docker": Command(positionals=(r"[a-z0-9.,-]+",)),
    "config set": Command(positionals=("project", NAME)),
    "services enable": Command(positionals=(r"[a-z]+\.googleapis\.com",), more=True),
    "services list": Command({"--enabled": SWITCH, "--available": SWITCH, **_LIST}),
    "projects create": Command({"--name": ANY, "--organization": NUMBER, "--folder": NUMBER}, (NAME,)),
    "projects describe": Command(positionals=(NAME,)),
    "projects get-iam-policy": Command({"--flatten": ANY, **_LIST}, (NAME,)),
    "projects add-iam-policy-binding": Command(
        {"--member": r"(user|group|serviceAccount):" + EMAIL, "--role": r"roles/[a-zA-Z.0-9]+", "--condition": ANY},
        (NAME,),
        ("--member", "--role"),
    ),
    "billing projects link": Command({"--billing-account": r"[A-F0-9-]+"}, (NAME,), ("--billing-account",)),
    "iam service-accounts create": Command({"--display-name": ANY, "--description": ANY}, (NAME,)),
    "iam service-accounts delete": Command(positionals=(EMAIL,)),
    "artifacts repositories create": Command(
        {"--repository-format": "docker", "--location": r"[a-z0-9-]+", "--description": ANY},
        (NAME,),
        ("--repository-format", "--location"),
    ),
    "artifacts repositories delete": Command({"--location": r"[a-z0-9-]+"}, (NAME,), ("--location",)),
    "compute regions describe": Command(positionals=(REGION,)),
    "compute project-info describe": Command(),
    "compute networks create": Command({"--subnet-mode": "auto|custom"}, (NAME,)),
    "compute networks subnets update": Command(
        {"--region": REGION, "--enable-private-ip-google-access": SWITCH}, (NAME,), ("--region",)
    ),
    "compute firewall-rules create": Command(
        {
            "--network": NAME,
            "--direction": "INGRESS|EGRESS",
            "--action": "ALLOW|DENY",
            "--rules": r"[a-z]+(:[\d-]+)?(,[a-z]+(:[\d-]+)?)*",
            "--source-ranges": CIDRS,
            "--target-tags": ANY,
        },
        (NAME,),
        ("--action",),
    ),
    "compute firewall-rules delete": Command(positionals=(NAME,), more=True),
    "compute routers create": Command({"--network": NAME, "--region": REGION}, (NAME,), ("--network", "--region")),
    "compute routers nats create": Command(
        {
            "--router": NAME,
            "--region": REGION,
            "--auto-allocate-nat-external-ips": SWITCH,
            "--nat-all-subnet-ip-ranges": SWITCH,
        },
        (NAME,),
        ("--router", "--region"),
    ),
    "compute routers delete": Command({"--region": REGION}, (NAME,), ("--region",)),
    "compute instances create": Command(
        {
            "--zone": ZONE,
            "--machine-type": r"[a-z0-9-]+",
            "--image-family": r"[a-z0-9-]+",
            "--image-project": NAME,
            "--boot-disk-size": r"\d+GB",
            "--service-account": EMAIL,
            "--scopes": ANY,
            "--tags": ANY,
            "--network": NAME,
            "--subnet": NAME,
        },
        (NAME,),
        ("--zone",),
    ),
    "compute instances delete": Command({"--zone": ZONE}, (NAME,), ("--zone",), more=True),
    "compute instances list": Command(_LIST),
    "compute instances simulate-maintenance-event": Command({"--zone": ZONE}, (NAME,), ("--zone",), more=True),
    "compute disks list": Command(_LIST),
    "compute addresses list": Command(_LIST),
    "compute scp": Command(
        {"--zone": ZONE, "--recurse": SWITCH, "--tunnel-through-iap": SWITCH}, (ANY, ANY), ("--zone",), True
    ),
    "compute ssh": Command(
        {"--zone": ZONE, "--command": ANY, "--tunnel-through-iap": SWITCH}, (r"([a-z0-9]+@)?" + NAME,), ("--zone",)
    ),
    "container clusters list": Command(_LIST),
    "container clusters update": Command(
        {
            "--location": PLACE,
            "--enable-master-authorized-networks": SWITCH,
            "--master-authorized-networks": CIDRS,
            "--enable-private-nodes": SWITCH,
        },
        (NAME,),
        ("--location",),
    ),
    "container node-pools list": Command({**_POOL, **_LIST}, (), ("--cluster", "--location")),
    "container node-pools create": Command(
        {
            **_POOL,
            "--node-locations": ZONE,
            "--machine-type": r"[a-z0-9-]+",
            "--num-nodes": NUMBER,
            "--accelerator": r"type=[a-z0-9-]+,count=\d+",
            "--disk-size": r"\d+(GB)?",
            "--spot": SWITCH,
        },
        (NAME,),
        ("--cluster", "--location"),
    ),
    "container node-pools delete": Command(_POOL, (NAME,), ("--cluster", "--location")),
}
BQ: Mapping[str, Command] = {
    "query": Command({"--use_legacy_sql": "true|false"}, (ANY,)),
    "mk": Command({"--dataset": SWITCH, "--location": ANY}, (ANY,)),
}
DOCKER: Mapping[str, Command] = {
    "build": Command({"-f": ANY, "-t": ANY, "--build-arg": r"(TORCH|BASE|PIP_FIND_LINKS)=.+"}, (r"\.",)),
    "push": Command(positionals=(r"[a-z0-9.-]+(/[A-Za-z0-9_.-]+)+:[A-Za-z0-9_.-]+",)),
    "login": Command(),
}
PROGRAMS = {"gcloud": GCLOUD, "bq": BQ, "docker": DOCKER}
_GLOBAL = {"gcloud": _EVERYWHERE, "bq": {"--project_id": NAME, "--format": ANY, "--location": ANY}, "docker": {}}


@dataclass(frozen=True, slots=True)
class Parsed:
    command: str
    positionals: tuple[str, ...]
    flags: Mapping[str, str]


def parse(program: str, argv: Sequence[str]) -> Parsed:
    """Check a command. Raises `Wrong` if the program would refuse it."""
    commands, common = PROGRAMS[program], _GLOBAL[program]
    words = [each for each in argv if not (each.startswith("--") and each.partition("=")[0] in common)]
    name = next((" ".join(words[:count]) for count in range(4, 0, -1) if " ".join(words[:count]) in commands), None)
    if name is None:
        raise Wrong(f"{program} has no command {' '.join(words[:3])!r}")
    command = commands[name]
    flags, positionals = _split(list(argv), {**command.flags, **common}, set(name.split()))
    for flag in command.needs:
        if flag not in flags:
            raise Wrong(f"{program} {name} needs {flag}")
    _check_positionals(f"{program} {name}", command, positionals)
    return Parsed(name, tuple(positionals), flags)


def _split(argv: list[str], known: Mapping[str, str], words: set[str]) -> tuple[dict[str, str], list[str]]:
    flags: dict[str, str] = {}
    positionals: list[str] = []
    left = list(argv)
    while left:
        each = left.pop(0)
        if not each.startswith("-"):
            if each in words:
                words.discard(each)
            else:
                positionals.append(each)
            continue
        flag, has_value, value = each.partition("=")
        pattern = known.get(flag)
        if pattern is None:
            raise Wrong(f"there is no flag {flag}")
        if pattern == SWITCH:
            if has_value:
                raise Wrong(f"{flag} takes no value")
        elif not has_value:
            if not left:
                raise Wrong(f"{flag} needs a value")
            value = left.pop(0)
        if pattern != SWITCH and re.fullmatch(pattern, value, re.DOTALL) is None:
            raise Wrong(f"{flag} cannot be {value!r}")
        flags[flag] = value
    return flags, positionals


def _check_positionals(name: str, command: Command, given: Sequence[str]) -> None:
    expected = command.positionals
    if len(given) < len(expected) or (len(given) > len(expected) and not command.more):
        raise Wrong(f"{name} takes {len(expected)} arguments, not {len(given)}: {' '.join(given)}")
    for number, value in enumerate(given):
        pattern = expected[min(number, len(expected) - 1)]
        if re.fullmatch(pattern, value, re.DOTALL) is None:
            raise Wrong(f"{name}: {value!r} is no {pattern}")
