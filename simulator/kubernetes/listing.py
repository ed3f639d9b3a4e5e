"""Lists of objects, whole or page by page."""

import base64
import binascii
from dataclasses import dataclass

import msgspec

from simulator.kubernetes import problems
from simulator.kubernetes.objects import Key, Obj, key_of
from simulator.kubernetes.resources import Resource
from simulator.kubernetes.selectors import Predicate
from simulator.kubernetes.store import Store


@dataclass(frozen=True, slots=True)
class Listing:
    namespace: str = ""
    matches: Predicate | None = None
    limit: int = 0
    page: str = ""
    exact_version: int | None = None
    least_version: int = 0


class Page(msgspec.Struct, frozen=True):
    """Content of a `continue` token: the version of the list, and the last key of the page before."""

    version: int
    after: Key


def list_objects(store: Store, resource: Resource, listing: Listing) -> Obj:
    """A whole list, or one page of it; later pages show the same version as the first."""
    page = _read_page(listing.page) if listing.page else None
    version = page.version if page else listing.exact_version
    asked = max(version or 0, listing.least_version)
    if asked > store.version:
        raise problems.too_large_version(asked, store.version)
    if version is None:
        version, objects = store.version, store.all(resource, listing.namespace)
    else:
        objects = store.all_at(resource, listing.namespace, version)
    if page is not None:
        objects = [obj for obj in objects if key_of(obj) > page.after]
    if listing.matches is not None:
        objects = [obj for obj in objects if listing.matches(obj)]
    shown = objects[: listing.limit] if listing.limit > 0 else objects
    fields: Obj = {"resourceVersion": str(version)}
    if len(shown) < len(objects):
        fields["continue"] = _page(Page(version, key_of(shown[-1])))
        if listing.matches is None:
            fields["remainingItemCount"] = len(objects) - len(shown)
    return {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": fields, "items": shown}


def _page(page: Page) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(page)).decode().rstrip("=")


def _read_page(token: str) -> Page:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)), type=Page)
    except (binascii.Error, msgspec.DecodeError, ValueError):
        raise problems.bad_request("continue key is not valid") from None
