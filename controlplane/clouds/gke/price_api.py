"""The Cloud Billing Catalog API over HTTP. A fetch has retries and a time limit, and returns all pages or fails."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any

import aiohttp
from msgspec import Meta, Struct, field

from controlplane.catalog import cache
from controlplane.catalog.offers import Catalog, Offer
from controlplane.catalog.price_list import Price
from controlplane.catalog.refresh import OnChange, Prices, PricesAway, PricesRefused, Rest
from controlplane.catalog.shipped import shipped_catalog
from controlplane.clouds.gke.price_parts import Page, Sku, parts_of, prices_of
from messages.decoding import Undecodable, decode
from runtime.backoff import pauses
from runtime.errors import Temporary, UserError
from runtime.paths import current_folder, placed
from runtime.settings import read_settings

ENVIRONMENT_PREFIX = "TRADEWIND_PRICES_"
COMPUTE_SERVICE = "6F81-5844-456A"
PAGE_SIZE = 5000
MAX_PAGES = 100
MAX_PAGE_BYTES = 64 * 1024 * 1024
FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 20.0
PAYS = "X-Goog-User-Project"
_PROJECT = re.compile(r"in project ([a-z0-9.:-]+) before")
TEMPORARY = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}

Account = Callable[[], Awaitable[Mapping[str, str]]]
"""HTTP headers that identify the caller and the project that pays."""


class PriceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the environment, such as `TRADEWIND_PRICES_URL`. Without a key or token nothing is fetched."""

    url: Annotated[str, Meta(pattern=r"^https?://")] = "https://cloudbilling.googleapis.com"
    api_key: str | None = None
    """A key of a project with the Cloud Billing API; it needs no permissions."""
    token: str | None = None
    """An OAuth access token instead of a key. It expires: a master with a fleet uses the token of its own account."""
    project: str | None = None
    """The project that pays for calls with the token; a user's token needs one."""
    cache: str | None = None
    """A file; None: `tradewind/gcp-prices.json` in the user's cache folder."""
    every_s: Annotated[float, Meta(ge=60, le=30 * 86400)] = 86400.0
    call_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    """Seconds that one page may take."""
    attempts: Annotated[int, Meta(ge=1, le=20)] = 5
    """Attempts for each page."""
    total_s: Annotated[float, Meta(gt=0, le=3600)] = 300.0


class GooglePrices:
    """Google's price list as a `PriceSource`."""

    def __init__(self, settings: PriceSettings, account: Account | None, rest: Rest) -> None:
        self._settings = settings
        self._account = account
        self._rest = rest

    @property
    def name(self) -> str:
        return self._settings.url

    @property
    def every_s(self) -> float:
        return self._settings.every_s

    @property
    def why_not(self) -> str:
        if self._settings.api_key or self._settings.token or self._account:
            return ""
        return "neither a key nor a token is set; set TRADEWIND_PRICES_API_KEY to refresh the prices."

    async def fetch(self, offers: Iterable[Offer]) -> Sequence[Price]:
        async with aiohttp.ClientSession(trust_env=True) as session:
            skus = await fetch_skus(session, self._settings, account=self._account, rest=self._rest)
        return prices_of(parts_of(skus), offers)


def open_prices(
    shipped: Catalog,
    settings: PriceSettings,
    *,
    account: Account | None = None,
    on_change: OnChange = lambda catalog: None,
    rest: Rest = asyncio.sleep,
) -> Prices:
    """Prices with those of the last fetch. Reads a file."""
    given = settings.cache
    cache_file = placed(given, current_folder(), "TRADEWIND_PRICES_CACHE") if given else cache.default_cache()
    prices = Prices(shipped, GooglePrices(settings, account, rest), cache_file, on_change=on_change, rest=rest)
    prices.recall()
    return prices


def known_prices(environ: Mapping[str, str], account: Account | None = None) -> Prices:
    """Prices with the settings of the environment. Reads files. Raises `UserError` for unusable settings."""
    settings = read_settings(PriceSettings, environ, prefix=ENVIRONMENT_PREFIX)
    return open_prices(shipped_catalog(), settings, account=account)


async def fetch_skus(
    session: aiohttp.ClientSession,
    settings: PriceSettings,
    *,
    account: Account | None = None,
    rest: Rest = asyncio.sleep,
) -> list[Sku]:
    """Fetch all SKUs. Raises `PricesAway` or `PricesRefused`."""
    try:
        async with asyncio.timeout(settings.total_s):
            return await _all_pages(session, settings, account, rest)
    except TimeoutError:
        raise PricesAway(f"{settings.url} did not return all pages within {settings.total_s:g} s.") from None


async def _all_pages(
    session: aiohttp.ClientSession, settings: PriceSettings, account: Account | None, rest: Rest
) -> list[Sku]:
    skus: list[Sku] = []
    page_token, seen = "", {""}
    for _ in range(MAX_PAGES):
        page = await _page_in_time(session, settings, page_token, account, rest)
        skus += page.skus
        page_token = page.next_page_token
        if not page_token:
            return skus
        if page_token in seen:
            raise PricesRefused(f"{settings.url} returned the same page twice.")
        seen.add(page_token)
    raise PricesRefused(f"{settings.url} has more than {MAX_PAGES} pages.")


async def _page_in_time(
    session: aiohttp.ClientSession, settings: PriceSettings, page_token: str, account: Account | None, rest: Rest
) -> Page:
    waits_s = pauses(FIRST_BACKOFF_S, MAX_BACKOFF_S)
    for attempt in range(1, settings.attempts + 1):
        try:
            return await _page(session, settings, page_token, account)
        except PricesAway:
            if attempt == settings.attempts:
                raise
        await rest(next(waits_s))
    raise AssertionError("the last attempt returns or raises")


async def _page(
    session: aiohttp.ClientSession, settings: PriceSettings, page_token: str, account: Account | None
) -> Page:
    query = {"pageSize": str(PAGE_SIZE), "currencyCode": "USD", **({"pageToken": page_token} if page_token else {})}
    headers = await _headers(settings, account)
    try:
        async with session.get(
            f"{settings.url.rstrip('/')}/v1/services/{COMPUTE_SERVICE}/skus",
            params=query,
            headers=headers,
            timeout=aiohttp.ClientTimeout(settings.call_s),
        ) as response:
            content = await _bounded(response, settings)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise PricesAway(f"cannot reach {settings.url}: {str(error) or type(error).__name__}.") from error
    if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR or response.status in TEMPORARY:
        raise PricesAway(f"{settings.url} answered with status {response.status}.")
    if response.status != HTTPStatus.OK:
        raise _refused(settings.url, response.status, content, headers.get(PAYS, ""))
    try:
        return decode(content, Page)
    except Undecodable as error:
        raise PricesRefused(f"{settings.url} did not answer with a list of SKUs: {error}.") from None


async def _headers(settings: PriceSettings, account: Account | None) -> Mapping[str, str]:
    """HTTP headers with the key or token. They are not in the URL, because URLs are written to logs."""
    pays = {PAYS: settings.project} if settings.project else {}
    if settings.api_key:
        return {"X-Goog-Api-Key": settings.api_key}
    if settings.token:
        return {"Authorization": f"Bearer {settings.token}", **pays}
    try:
        return {**await account(), **pays} if account is not None else {}
    except Temporary as error:
        raise PricesAway(f"cannot fetch a token for the price list now: {error}") from error
    except UserError as error:
        raise PricesRefused(f"cannot fetch a token for the price list: {error}") from error


async def _bounded(response: aiohttp.ClientResponse, settings: PriceSettings) -> bytes:
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > MAX_PAGE_BYTES:
            raise PricesRefused(f"A page of {settings.url} is larger than {MAX_PAGE_BYTES} bytes.")
    return bytes(content)


class _Error(Struct, frozen=True):
    message: str = ""
    details: list[dict[str, Any]] = field(default_factory=list)


class _Refusal(Struct, frozen=True):
    error: _Error = _Error()


def _refused(url: str, status: int, content: bytes, project: str) -> PricesRefused:
    try:
        error = decode(content, _Refusal).error
    except Undecodable:
        error = _Error()
    said = error.message[:300] or "without a reason"
    reasons = [str(each.get("reason", "")) for each in error.details]
    named = _PROJECT.search(said)
    hint = _hint(reasons, said, project or (named[1] if named else "PROJECT"))
    return PricesRefused(f"{url} refused the request with status {status}: {said}", hint)


def _hint(reasons: list[str], said: str, project: str) -> str:
    """The command that removes the cause, in the order of Google's checks."""
    if "requires a quota project" in said:
        return "Run: gcloud auth application-default set-quota-project PROJECT; or set TRADEWIND_PRICES_PROJECT."
    if "USER_PROJECT_DENIED" in reasons:
        return (
            f"Run: gcloud projects add-iam-policy-binding {project} --member=user:YOU "
            "--role=roles/serviceusage.serviceUsageConsumer"
        )
    if "SERVICE_DISABLED" in reasons or "has not been used in project" in said:
        return f"Run: gcloud services enable cloudbilling.googleapis.com --project={project}"
    return "docs/catalog.md describes what the price list needs."
