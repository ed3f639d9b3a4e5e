"""A simulated Google with a cluster of the fleet, a master, and a trial."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.clouds.gke_fleets import read_gke_fleet
from tests.clouds.simulated import PROJECT, ZONE
from tests.gcloud.stand_in import Google, answer
from tests.reaper.ground import Ground, a_ground
from tests.trial.master import TrialMaster
from tradewind.client.api import Api, session
from tradewind.client.jobfile import read_job
from tradewind.trial.checklist import CHECKS
from tradewind.trial.commands import READ_S, TIMED_OUT, Ran
from tradewind.trial.gcloud import Gcloud
from tradewind.trial.setup_checks import ROLES, SERVICES
from tradewind.trial.stage import Bounds, Scarce, Trial
from tradewind.trial.verdicts import Verdict

DEFAULT_ACCOUNT = "123456789-compute@developer.gserviceaccount.com"
JOB_FILE = Path(__file__).parents[2] / "deploy" / "gke-trial.yaml"
QUICK = Bounds(
    start_s=10.0,
    notice_s=5.0,
    replaced_s=5.0,
    removed_s=2.0,
    settled_s=0.4,
    stockout_s=10.0,
    refused_s=10.0,
    gone_s=2.0,
    poll_s=0.05,
)


@dataclass
class Scene:
    ground: Ground
    master: TrialMaster
    google: Google
    api: Api
    bounds: Bounds = QUICK
    dry_run: bool = False

    def change(self, **changes: Any) -> None:
        self.google = msgspec.structs.replace(self.google, **changes)

    def trial(self) -> Trial:
        fleet = read_gke_fleet(self.ground.fleet_file)
        return Trial(
            fleet=fleet,
            spec=read_job(JOB_FILE),
            gcloud=Gcloud(self._run, PROJECT, fleet.name, dry_run=self.dry_run),
            api=self.api,
            scarce=Scarce("g2-standard-8", "nvidia-l4", ZONE),
            billing_table="a-project.billing.export",
            dry_run=self.dry_run,
            bounds=self.bounds,
        )

    async def _run(self, *argv: str, within_s: float = READ_S) -> Ran:
        got = await answer(self.google, argv[0], argv[1:])
        return Ran(got.code, got.out, got.err) if got.code != TIMED_OUT else Ran(TIMED_OUT, "", "too slow")

    async def check(self, name: str) -> Verdict:
        return await CHECKS[name](self.trial())


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with a_ground(tmp_path, notice_s=0.5) as ground:
        settings = ground.stage.settings
        url = settings.compute_url.removesuffix("/compute/v1")
        google = Google(
            url=url,
            endpoint=settings.endpoint,
            key=str(settings.credentials_file),
            project=PROJECT,
            services=SERVICES,
            roles={DEFAULT_ACCOUNT: tuple(ROLES)},
        )
        master = TrialMaster(cloud=ground.cloud, control_url=url, fleet="a-fleet")
        await master.start()
        async with session() as opened:
            yield Scene(ground, master, google, Api(opened, master.url))
        await master.stop()
