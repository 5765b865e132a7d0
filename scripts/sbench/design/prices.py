"""Compute the price of runs, records and requests in US dollars, from the dated prices in config/facts/prices.yaml."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sbench.design.yaml_file import read_mapping
from sbench.probe.program import Problem
from sbench.stores import store as stores

if TYPE_CHECKING:
    from sbench.design.cost import Totals

PRICES = Path("config/facts/prices.yaml")
# The region of a machine outside the cloud, to which data is transferred over the internet.
OUTSIDE = "none"
# The kinds of requests with a price, and the kind of each method. DELETE is free; methods without an entry are priced
# as GET.
BILLED = ("gets", "puts", "lists")
_KINDS = {"PUT": "puts", "POST": "puts", "LIST": "lists", "DELETE": ""}
# The age from which a price is reported as outdated.
_OLD_MONTHS = 12
_TRANSFER = {"usd_per_gib_region", "usd_per_gib_internet"}


class _Part(NamedTuple):
    """An item of a bill. `usd` is None if no price is known; `as_of` is the date of the price."""

    usd: float | None
    words: str
    as_of: str = ""


class Bill(NamedTuple):
    """The price of a run in US dollars, and a line of text that explains it."""

    usd: float
    line: str


class Rates(NamedTuple):
    """The list prices of the requests to a store, and of the bytes that leave its region.

    Attributes:
        usd: US dollars per request of each kind in `BILLED`, and per byte delivered to the machine (`bytes`).
        title: the service and the region with these prices, such as "S3 standard in us-east-1".
        dates: dates of the prices.
        is_emulated: whether the store is an embedded server, which has the prices of the service in `emulated`.
    """

    usd: Mapping[str, float]
    title: str
    dates: tuple[str, ...]
    is_emulated: bool

    def compute_usd(self, counts: Mapping[str, float]) -> float:
        """Return the price of numbers of requests and bytes in US dollars; NaN if a number with a price is NaN."""
        return math.fsum(price * counts[name] for name, price in self.usd.items() if price)


def read_prices() -> dict:
    """Read and check the list of prices.

    Raises:
        Problem: the file cannot be read; or an entry lacks a price, a date or a source, or has a wrong one.
    """
    return _read_checked(PRICES.absolute())


@cache
def _read_checked(path: Path) -> dict:
    prices = read_mapping(path)
    machines, services = (_get_mapping(prices, key, str(path)) for key in ("machines", "stores"))
    for region in machines:
        for name, entry in _get_mapping(machines, region, f"{path}: machines").items():
            _check_prices({name: entry}, name, f"{path}: machines.{region}", ("usd_per_hour",))
    for service in services:
        regions = _get_mapping(services, service, f"{path}: stores")
        for region in regions:
            place = f"{path}: stores.{service}.{region}"
            listed = _get_mapping(regions, region, f"{path}: stores.{service}")
            _check_text(listed, "title", place, r".+", "a name")
            _check_prices(listed, "requests", place, [f"usd_per_1000_{name}" for name in BILLED])
            _check_prices(listed, "transfer", place, _TRANSFER & _get_mapping(listed, "transfer", place).keys())
    emulated = _get_mapping(prices, "emulated", str(path))
    if not services.get(emulated.get("service"), {}).get(emulated.get("region")):
        raise Problem(f"{path}: emulated must have a service and a region of stores")
    return prices


def _get_mapping(parent: Mapping, key: str, place: str) -> dict:
    if not isinstance(mapping := parent.get(key), dict):
        raise Problem(f"{place}: {key} must be a mapping (got {mapping})")
    return mapping


def _check_prices(parent: Mapping, key: str, place: str, names: Iterable[str]) -> None:
    entry, place = _get_mapping(parent, key, place), f"{place}.{key}"
    for name in names:
        price = entry.get(name)
        if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price < math.inf:
            raise Problem(f"{place}: {name} must be a price in US dollars (got {price})")
    _check_text(entry, "as_of", place, r"\d{4}(-(0[1-9]|1[0-2]))?", 'a date such as "2026-11"')
    _check_text(entry, "source", place, r".*https?://.*", "a name and an address")


def _check_text(entry: Mapping, key: str, place: str, pattern: str, noun: str) -> None:
    text = entry.get(key)
    if not isinstance(text, str) or not re.fullmatch(pattern, text):
        raise Problem(f"{place}: {key} must be {noun} (got {text})")


def describe_age(dates: Iterable[str], today: date) -> str:
    """Describe prices that are older than a year, as in "prices of 2025-03 are older than 12 months".

    Return an empty string if there are none. A date without a month counts from January.
    """

    def count_months(text: str) -> int:
        year, _, month = text.partition("-")
        return (today.year - int(year)) * 12 + today.month - int(month or 1)

    old = sorted({text for text in dates if count_months(text) > _OLD_MONTHS})
    return f"prices of {' and '.join(old)} are older than {_OLD_MONTHS} months; update {PRICES}" if old else ""


def list_dates() -> list[str]:
    """Return the dates of all prices."""
    prices = read_prices()
    machines = [entry for types in prices["machines"].values() for entry in types.values()]
    listed = [entry for regions in prices["stores"].values() for entry in regions.values()]
    parts = [*machines, *(entry[part] for entry in listed for part in ("requests", "transfer"))]
    return sorted({entry["as_of"] for entry in parts})


def count_billed(requests: Mapping[str, Mapping[str, float | None]]) -> dict[str, float]:
    """Return the number of requests of each kind in `BILLED`.

    Args:
        requests: method -> {"count", …}, as in records and in `sbench count`. `listings` of GET is the number of its
            requests that list a bucket; without this number, they are priced as GET.
    """
    counts = dict.fromkeys(BILLED, 0.0)
    for method, numbers in requests.items():
        listings = numbers.get("listings") or 0
        counts["lists"] += listings
        if kind := _KINDS.get(method, "gets"):
            counts[kind] += (numbers["count"] or 0) - listings
    return counts


def find_rates(spec: Mapping, machine: Mapping | None = None) -> Rates | None:
    """Return the list prices of a store for a machine.

    Args:
        spec: the store's configuration entry.
        machine: the configuration entry of the machine; None for a machine in the store's region.

    Returns:
        The prices; None if the store is a file system, or if the list lacks its prices.
    """
    store = stores.get_store(dict(spec))
    if store.embedded:
        return get_emulated_rates(machine)
    region = spec.get("region", "")
    listed = read_prices()["stores"].get(store.billed_service, {}).get(region)
    return _build_rates(listed, region, machine["region"] if machine else region, False) if listed else None


def get_emulated_rates(machine: Mapping | None = None) -> Rates:
    """Return the list prices that requests to an embedded server would have at a service in the cloud.

    Bytes are free, as if the machine was in the same region, unless its region is `OUTSIDE`.
    """
    prices = read_prices()
    service, region = prices["emulated"]["service"], prices["emulated"]["region"]
    place = OUTSIDE if machine and machine["region"] == OUTSIDE else region
    return _build_rates(prices["stores"][service][region], region, place, True)


def _build_rates(listed: Mapping, region: str, place: str, is_emulated: bool) -> Rates:
    """Build the prices of a region for a machine at `place`; a missing price of transfer is NaN."""
    requests, transfer = listed["requests"], listed["transfer"]
    usd = {name: requests[f"usd_per_1000_{name}"] / 1000 for name in BILLED}
    dates = {requests["as_of"]}
    if place != region:
        usd["bytes"] = transfer.get(_get_transfer_key(place), math.nan) / 2**30
        dates.add(transfer["as_of"])
    return Rates(usd, f"{listed['title']} in {region}", tuple(sorted(dates)), is_emulated)


def _get_transfer_key(place: str) -> str:
    return "usd_per_gib_internet" if place == OUTSIDE else "usd_per_gib_region"


def find_hourly_price(machine: Mapping | None) -> tuple[float, str] | None:
    """Return the price of an hour of a machine in US dollars, and its date; None if it is unknown.

    The date of a configured price is empty.
    """
    if machine is None:
        return None
    if "usd_per_hour" in machine:
        return machine["usd_per_hour"], ""
    listed = read_prices()["machines"].get(machine["region"], {}).get(machine["type"])
    return (listed["usd_per_hour"], listed["as_of"]) if listed else None


def compute_record_usd(record: Mapping, machine: Mapping | None) -> dict[str, float]:
    """Return what a measured record cost, in US dollars.

    Args:
        record: a record.
        machine: the configuration entry of the machine, if any.

    Returns:
        `requests_usd` and `transfer_usd` if the requests were counted and have a price; `machine_usd`, for the timed
            seconds, if an hour of the machine has one.
    """
    usd: dict[str, float] = {}
    requests, spec = record.get("requests") or {}, (record.get("settings") or {}).get("store") or {}
    if requests and "kind" in spec and (rates := find_rates(spec, machine)):
        counts = count_billed(requests)
        usd["requests_usd"] = rates._replace(usd={name: rates.usd[name] for name in BILLED}).compute_usd(counts)
        sizes = [numbers.get("bytes_delivered") or numbers.get("bytes_offered") or 0 for numbers in requests.values()]
        usd["transfer_usd"] = rates.usd.get("bytes", 0) * sum(sizes)
    seconds = (record.get("seconds") or {}).get("total")
    if seconds is not None and (hourly := find_hourly_price(machine)):
        usd["machine_usd"] = hourly[0] * seconds / 3600
    return usd


def compute_bill(config: dict, totals: "Totals", seconds: float) -> Bill | None:
    """Compute the price of a run, excluding items whose price is unknown.

    Args:
        config: a resolved configuration.
        totals: the estimated requests and bytes (see `sbench.design.cost.Cost`).
        seconds: how long the run needs the machine.

    Returns:
        The bill; None if the run uses no remote store and the configuration specifies no machine.
    """
    used = sorted(name for what, name in (key for key in totals if isinstance(key, tuple)) if what == "bytes")
    elsewhere = {name: store for name in used if (store := stores.get_store(config["stores"][name])).elsewhere}
    if not elsewhere and "machine" not in config:
        return None
    prices = read_prices()
    machine = config.get("machine")
    parts = [_build_machine_part(machine, prices["machines"], seconds / 3600)]
    for name, store in elsewhere.items():
        own = {what: totals[what, name] for what in ("gets", "puts", "bytes")}
        parts += _list_store_parts(name, store, own, machine, prices)
    priced = [(part, part.usd) for part in parts if part.usd is not None]
    usd, dates = sum(amount for _, amount in priced), sorted({part.as_of for part, _ in priced} - {""})
    shown = ", ".join(f"{amount:.2f} {part.words}" for part, amount in priced) or "no known prices"
    lacking = [part.words for part in parts if part.usd is None]
    old = describe_age(dates, date.today())
    line = (
        f"about {seconds / 3600:.1f} h, {totals['requests']:,.0f} requests, {totals['bytes'] / 2**30:,.0f} GiB;"
        f" about {usd:.2f} USD: {shown}"
        + (f"; prices of {' and '.join(dates)} ({PRICES})" if dates else "")
        + (f"; not counted: {', '.join(lacking)}" if lacking else "")
        + (f"; {old}" if old else "")
    )
    return Bill(usd, line)


def _build_machine_part(machine: Mapping | None, prices: Mapping, hours: float) -> _Part:
    if machine is None:
        example = next(iter(prices["us-east-1"]))
        return _Part(None, f"the machine (write machine: {{type: {example}, region: us-east-1}})")
    if not (hourly := find_hourly_price(machine)):
        where = f"{machine['type']} in {machine['region']}"
        return _Part(None, f"the machine ({PRICES} lacks {where}; add usd_per_hour to machine)")
    usd, as_of = hourly
    return _Part(hours * usd, f"machine ({hours:.1f} h of {machine['type']} at {usd:g})", as_of)


def _list_store_parts(
    name: str, store: stores.Store, own: Mapping, machine: Mapping | None, prices: Mapping
) -> Iterator[_Part]:
    region = store.spec.get("region", "")
    of_region = prices["stores"].get(store.billed_service, {}).get(region)
    if not of_region:
        yield _Part(None, f"requests to {name} ({PRICES} lacks their price)")
        return
    each, out = of_region["requests"], of_region["transfer"]
    for what, verb in (("gets", "GET"), ("puts", "PUT")):
        price = each[f"usd_per_1000_{what}"]
        words = f"{verb} ({own[what]:,.0f} to {name} at {price:g} per 1,000)"
        yield _Part(own[what] / 1000 * price, words, each["as_of"])
    place = machine["region"] if machine else region
    if place != region:
        price = out.get(_get_transfer_key(place))
        if price is None:
            yield _Part(None, f"transfer out of {region} ({PRICES} lacks its price)")
            return
        words = f"transfer out of {region} ({own['bytes'] / 2**30:,.0f} GiB at {price:g})"
        yield _Part(own["bytes"] / 2**30 * price, words, out["as_of"])
