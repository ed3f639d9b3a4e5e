"""The golden messages: each is the result of a production function for a fixed input."""

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

from controlplane.catalog.memory import Memory, estimate
from controlplane.catalog.shipped import shipped_catalog, shipped_links
from controlplane.fleet.files import read_fleet
from controlplane.job import texts
from controlplane.jobs import errors as refused
from controlplane.master.settings import check, read_master_settings
from controlplane.planning.criteria import criteria_of
from controlplane.planning.market import market_of
from controlplane.planning.profiles import profile_of
from controlplane.planning.refusals import refusals
from messages.api import EventLine, JobView
from messages.budgets import BudgetView
from messages.costs import CostView, ForecastView
from messages.criteria import Capacity, WhenSpent
from messages.ids import Generation, JobName, Rank, WorkerId
from messages.jobs import JobSpec, Launch, Workers
from messages.workers import TrainerExit, WrittenCheckpoint
from runtime.errors import BusAway, TradewindError, UserError
from runtime.process import message_of
from tests.cli.command import invoked
from tradewind.cli.budget import budget_lines
from tradewind.cli.offers import accelerators_named, no_observations
from tradewind.cli.reload import reload_text
from tradewind.cli.run import check_script, gpu_warning
from tradewind.cli.scale import scaled_text
from tradewind.cli.stop import checkpoint_text, stopped_text, waiting_text
from tradewind.cli.submit import submitted_text
from tradewind.client import errors as client
from tradewind.client.jobfile import read_job
from tradewind.demo.changes import joined_text, lost_text
from tradewind.local.parts import restart_text
from tradewind.protocol.variables import TERMS
from tradewind.sdk.certificate import Certificate
from tradewind.sdk.checks import require_same_terms
from tradewind.terminal import output
from tradewind.terminal.costs import cost_lines

URL = "http://127.0.0.1:8800"
USD = 1_000_000


def error_text(raising: Callable[[], object]) -> str:
    """An error as the command prints it."""
    try:
        raising()
    except TradewindError as error:
        lines = [f"Error: {message_of(error)}", *(f"  {problem}" for problem in error.problems)]
        return "\n".join([*lines, *([f"Try: {error.hint}"] if error.hint else [])])
    except (RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("no error")


def raised(error: TradewindError) -> str:
    def fail() -> None:
        raise error

    return error_text(fail)


@contextmanager
def folder(**files: str) -> Iterator[None]:
    """A current folder with these YAML files."""
    with tempfile.TemporaryDirectory() as path, chdir(path):
        for name, text in files.items():
            Path(f"{name}.yaml").write_text(text)
        yield


def job_file(text: str, name: str = "job") -> str:
    with folder(job=text):
        return error_text(lambda: read_job(Path(f"{name}.yaml")))


def fleet_file(text: str) -> str:
    with folder(fleet=text):
        return error_text(lambda: read_fleet(Path("fleet.yaml")))


def script(name: str) -> str:
    with folder():
        Path("train.py").touch()
        return error_text(lambda: check_script(name))


def usage(*arguments: str) -> str:
    return invoked(*arguments, environ={}).err.splitlines()[-1]


def a_view(phase: str = "running", **changes: object) -> JobView:
    fields: dict[str, object] = {"wanted": 4, **changes}
    required = (JobName("mnist"), phase, "a reason", Generation(1), 4)
    return JobView(*required, failures=0, submitted_at=0.0, **fields)  # type: ignore[arg-type]


def stopped(saved: WrittenCheckpoint | None, step: int | None = None) -> str:
    return checkpoint_text(a_view(), a_view("stopped", checkpoint=saved, step=step))[1]


def plan_refusal(*, ranks: int = 1, **criteria: object) -> str:
    spec = JobSpec(
        name="opt",
        launch=Launch(script="train.py"),
        workers=Workers(min=2, max=4, ranks=ranks),
        capacity=Capacity(**criteria),  # type: ignore[arg-type]
        hyperparameters={"global_batch": 64},
    )
    wanted, offers, memory = criteria_of(spec), shipped_catalog().offers, Memory()
    market = market_of(wanted, offers, shipped_links(), seen=lambda zone, name: estimate(memory, zone, name, 0.0))
    return "\n".join(f"{place}: {text}" for place, text in refusals(spec, wanted, offers, market, profile_of(spec)))


def budget(**changes: object) -> str:
    fields: dict[str, object] = {"micro_usd_total": 10 * USD, "micro_usd": 4 * USD, **changes}
    required = {"job": JobName("mnist"), "when_spent": WhenSpent.PAUSE, "reserve_micro_usd": USD // 10}
    return "\n".join(budget_lines(BudgetView(**required, **fields)))  # type: ignore[arg-type]


def cost() -> str:
    view = CostView(
        job=JobName("mnist"),
        micro_usd=8 * USD,
        nodes_micro_usd=8 * USD,
        egress_micro_usd=0,
        micro_usd_per_hour=1_600_000,
        machines=2,
        node_s=36_000.0,
        by_activity={"working": 7 * USD, "idle": USD},
        on_demand_micro_usd=16 * USD,
        steps=20_000,
        micro_usd_per_1000_steps=400_000,
        forecast=ForecastView(100_000, 40 * USD, 32 * USD, 74_250.0, 80_000),
    )
    return "\n".join(cost_lines(view))


def event(why: str) -> str:
    return output.event_line(EventLine(0.0, "mnist", "worker_gone", "worker w1 is gone", why))[10:]


def settings(**environ: str) -> str:
    return error_text(lambda: check(read_master_settings(environ)))


def other_script() -> str:
    def terms(steps: int) -> str:
        return json.dumps({"batch": 48, "steps": steps})

    return error_text(lambda: require_same_terms(terms(10), {TERMS: terms(20)}))


LAUNCH = "name: mnist\nlaunch: {script: train.py}\n"
CASES: dict[str, Callable[[], str]] = {
    # job files
    "job file: unknown key": lambda: job_file(f"{LAUNCH}wrokers: {{max: 2}}"),
    "job file: missing key": lambda: job_file("name: mnist"),
    "job file: wrong type and name": lambda: job_file("name: My Job\nlaunch: {script: a.py}\nfailures: {max: two}"),
    "job file: out of range": lambda: job_file(f"{LAUNCH}workers: {{max: 0}}"),
    "job file: contradiction": lambda: job_file(f"{LAUNCH}workers: {{max: 2, min: 4}}"),
    "job file: script and module": lambda: job_file("name: mnist\nlaunch: {script: a.py, module: a}"),
    "job file: no YAML": lambda: job_file("name: [mnist"),
    "job file: not there": lambda: job_file(LAUNCH, "jbo"),
    "job file: unknown user": lambda: job_file("name: mnist\nlaunch: {script: a.py, workdir: ~nosuchuser/x}"),
    "job file: NUL": lambda: job_file('name: mnist\nlaunch: {script: "a\\0b"}'),
    # fleet files and settings
    "fleet file: unknown cloud": lambda: fleet_file("name: f\ncloud: {kind: moon}"),
    "settings: wrong port and days": lambda: settings(TRADEWIND_API_PORT="http", TRADEWIND_KEEP_DAYS="0"),
    "settings: no token": lambda: settings(TRADEWIND_API_HOST="0.0.0.0"),
    "settings: wrong ports of stores": lambda: settings(TRADEWIND_STORE_PORTS="a-b"),
    # refused options and scripts
    "usage: unknown command": lambda: usage("stauts"),
    "usage: unknown option": lambda: usage("stop", "mnist", "--garce", "3"),
    "usage: not a number": lambda: usage("scale", "mnist", "many"),
    "usage: not an amount": lambda: usage("budget", "mnist", "much"),
    "usage: workers": lambda: usage("run", "--workers", "0", "train.py"),
    "run: script not there": lambda: script("trian.py"),
    "run: script is a folder": lambda: script("."),
    "run: shared GPUs": lambda: str(gpu_warning(4, 1, 2)),
    "offers: unknown accelerator": lambda: error_text(lambda: accelerators_named("K80")),
    "offers: no observations": lambda: no_observations("The master did not answer within 3 s."),
    # masters and buses
    "master: connection refused": lambda: raised(client.unreachable(URL, "connection refused")),
    "master: standby": lambda: raised(client.NotLeading(URL, "http://10.0.0.2:8800")),
    "master: no leader": lambda: raised(client.NotLeading(URL, "")),
    "master: status 500": lambda: raised(client.could_not_answer(URL, "status 500")),
    "master: unknown job": lambda: raised(client.JobUnknown("mnits", ["mnist", "llama"])),
    "master: job exists": lambda: raised(refused.JobExists("mnist")),
    "master: change not recorded": lambda: raised(refused.NotRecorded("mnist")),
    "bus: away": lambda: raised(BusAway("nats://127.0.0.1:4222", "connection refused")),
    "output: problems": lambda: raised(UserError("The file has 2 problems:", "correct it", ("a: is 1", "b: is 2"))),
    # answers
    "submit": lambda: submitted_text(a_view("waiting")),
    "scale": lambda: scaled_text(a_view()),
    "reload": lambda: reload_text("mnist", 2),
    "stop: waits": lambda: waiting_text(a_view(stop_grace_s=40.0)),
    "stop: done": lambda: stopped_text(a_view("stopped")),
    "stop: checkpoint written": lambda: stopped(WrittenCheckpoint(120, "/ckpt", 2.0), 119),
    "stop: steps lost": lambda: stopped(WrittenCheckpoint(115, "/ckpt", 2.0), 116),
    "stop: no checkpoint": lambda: stopped(None),
    "budget": budget,
    "budget: paused": lambda: budget(micro_usd=9_900_000, paused="9.9000 of 10.0000 USD are spent"),
    "budget: none": lambda: budget(micro_usd_total=None),
    "cost": cost,
    # events and reasons of jobs
    "event: one line": lambda: event("ended by SIGKILL"),
    "event: several lines": lambda: event("Traceback:\n  line 1\nValueError: no data"),
    "job: rank failed": lambda: texts.describe_exit(TrainerExit(Rank(0), code=7, error="ValueError: no data")),
    "job: rank killed": lambda: texts.describe_exit(TrainerExit(Rank(1), signal="SIGKILL")),
    "job: rank ended early": lambda: texts.describe_exit(TrainerExit(Rank(1), code=0, early=True)),
    "job: all ranks exited": lambda: texts.all_exited(4),
    "job: no failure allowed": lambda: texts.failures_allowed(0),
    "job: workers named": lambda: texts.name_workers([WorkerId("a"), WorkerId("b")]),
    # plans
    "plan: unknown accelerator": lambda: plan_refusal(accelerators=("K80",)),
    "plan: unknown region": lambda: plan_refusal(regions=("us-central9",)),
    "plan: too many ranks": lambda: plan_refusal(accelerators=("L4",), ranks=3),
    "plan: too cheap": lambda: plan_refusal(accelerators=("L4",), max_usd_per_hour=0.01),
    # the SDK, the demonstration, the local stack
    "sdk: certificate": lambda: Certificate(steps=60, samples=2880).message(),
    "sdk: certificate with loss": lambda: Certificate(steps=60, samples=2879, lost=1, first_bad=3).message(),
    "sdk: other script": other_script,
    "demo: lost": lambda: lost_text("w2"),
    "demo: joined": lambda: joined_text("w5", "europe-west4"),
    "local: restart": lambda: restart_text("master", -9),
}
