"""Offers, SKUs and a price API that answers like Google's."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from controlplane.catalog.money import MicroDollars
from controlplane.catalog.offers import Catalog, Offer
from runtime.children import free_port

Json = dict[str, Any]


def an_offer(zone: str = "us-central1-a", spot: int | None = 512_000, on_demand: int | None = 853_600) -> Offer:
    return Offer(
        zone=zone,
        region=zone.rpartition("-")[0],
        machine_type="g2-standard-8",
        accelerator="L4",
        gpus=1,
        gpu_memory_gib=24,
        vcpus=8,
        memory_gib=32,
        network_bit_per_s=16e9,
        spot_micro_usd_per_hour=None if spot is None else MicroDollars(spot),
        on_demand_micro_usd_per_hour=None if on_demand is None else MicroDollars(on_demand),
    )


def a_catalog(*offers: Offer) -> Catalog:
    return Catalog(offers or (an_offer(),), "2026-08-22", "a test")


def a_sku(
    description: str,
    nanos: int,
    *,
    usage: str = "OnDemand",
    unit: str = "h",
    group: str = "GPU",
    regions: Iterable[str] = ("us-central1",),
    units: str = "0",
    currency: str = "USD",
) -> Json:
    return {
        "name": "services/6F81-5844-456A/skus/0000-0000-0000",
        "skuId": "0000-0000-0000",
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": "Compute",
            "resourceGroup": group,
            "usageType": usage,
        },
        "serviceRegions": list(regions),
        "pricingInfo": [
            {
                "effectiveTime": "2026-08-01T00:00:00Z",
                "summary": "",
                "currencyConversionRate": 1,
                "pricingExpression": {
                    "usageUnit": unit,
                    "displayQuantity": 1,
                    "baseUnit": "s",
                    "tieredRates": [
                        {
                            "startUsageAmount": 0,
                            "unitPrice": {"currencyCode": currency, "units": units, "nanos": nanos},
                        }
                    ],
                },
            }
        ],
        "serviceProviderName": "Google",
        "geoTaxonomy": {"type": "REGIONAL", "regions": list(regions)},
    }


def l4_skus(spot_gpu_nanos: int = 223_848_000) -> list[Json]:
    """All SKUs of a g2-standard-8 in Iowa, among similar ones."""
    spot = "Preemptible"
    return [
        a_sku("Nvidia L4 GPU running in Iowa", 560_040_000),
        a_sku("Nvidia L4 GPU attached to Spot Preemptible VMs running in Iowa", spot_gpu_nanos, usage=spot),
        a_sku("G2 Instance Core running in Iowa", 24_988_000, group="CPU"),
        a_sku("G2 Instance Ram running in Iowa", 2_927_000, group="RAM", unit="GiBy.h"),
        a_sku("Spot Preemptible G2 Instance Core running in Iowa", 9_995_000, group="CPU", usage=spot),
        a_sku("Spot Preemptible G2 Instance Ram running in Iowa", 1_171_000, group="RAM", unit="GiBy.h", usage=spot),
        a_sku("Commitment v1: Nvidia L4 GPU running in Iowa for 1 Year", 353_000_000, usage="Commit1Yr"),
        a_sku("Reserved Nvidia L4 GPU in Iowa", 999_000_000),
        a_sku("Nvidia L4 GPU attached to DWS Defined Duration VMs running in Iowa", 280_000_000),
        a_sku("G2 Sole Tenancy Instance Core running in Iowa", 99_000_000, group="CPU"),
        a_sku("G2 Custom Instance Core running in Iowa", 99_000_000, group="CPU"),
        a_sku("Nvidia H100 80GB Mega GPU running in Iowa", 999_000_000, units="9"),
        a_sku("Storage PD Capacity", 40_000_000, group="SSD", unit="GiBy.mo"),
    ]


Answer = Callable[[web.Request], web.Response]


@dataclass
class PriceApi:
    """Serves its SKUs in pages; `answers` come first, one for each request.

    It refuses like Google: a user's token needs the project that pays, the caller must be allowed to use that
    project, and the Cloud Billing API must be enabled in it.
    """

    skus: list[Json] = field(default_factory=l4_skus)
    page_size: int = 4
    answers: list[Answer] = field(default_factory=list)
    asked: list[web.Request] = field(default_factory=list)
    port: int = field(default_factory=free_port)
    usable: set[str] = field(default_factory=lambda: {"a-project"})
    enabled: set[str] = field(default_factory=lambda: {"a-project"})
    _runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application()
        app.add_routes([web.get("/v1/services/6F81-5844-456A/skus", self._page)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _page(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        if self.answers:
            return self.answers.pop(0)(request)
        refused = self._refused(request)
        if refused is not None:
            return refused(request)
        first = int(request.query.get("pageToken") or 0)
        end = first + self.page_size
        token = str(end) if end < len(self.skus) else ""
        return web.json_response({"skus": self.skus[first:end], "nextPageToken": token})

    def _refused(self, request: web.Request) -> Answer | None:
        project = request.headers.get("X-Goog-User-Project", "")
        if not project and request.headers.get("Authorization", "").startswith("Bearer user."):
            said = "The cloudbilling.googleapis.com API requires a quota project, which is not set by default."
            return status(403, said, "SERVICE_DISABLED")
        if project and project not in self.usable:
            said = f"Caller does not have required permission to use project {project}."
            return status(403, said, "USER_PROJECT_DENIED")
        if project and project not in self.enabled:
            said = f"Cloud Billing API has not been used in project {project} before or it is disabled."
            return status(403, said, "SERVICE_DISABLED")
        return None


def status(code: int, message: str = "", reason: str = "") -> Answer:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}] if reason else []
    body = json.dumps({"error": {"code": code, "message": message, "details": details}})
    return lambda request: web.Response(status=code, text=body, content_type="application/json")


def text(content: str) -> Answer:
    return lambda request: web.Response(text=content, content_type="application/json")
