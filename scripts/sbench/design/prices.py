"""Estimate the price of a run in US dollars, from the dated prices in config/facts/prices.yaml."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from sbench.design.cost import Totals
from sbench.probe.program import read_yaml
from sbench.stores import store as stores

PRICES = Path("config/facts/prices.yaml")
# The region of a machine outside the cloud, to which data is transferred over the internet.
OUTSIDE = "none"


class _Part(NamedTuple):
    """An item of a bill. `usd` is None if no price is known; `as_of` is the date of the price."""

    usd: float | None
    words: str
    as_of: str = ""


class Bill(NamedTuple):
    """The price of a run in US dollars, and a line of text that explains it."""

    usd: float
    line: str


def compute_bill(config: dict, totals: Totals, seconds: float) -> Bill | None:
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
    prices = read_yaml(PRICES)
    machine = config.get("machine")
    parts = [_build_machine_part(machine, prices["machines"], seconds / 3600)]
    for name, store in elsewhere.items():
        own = {what: totals[what, name] for what in ("gets", "puts", "bytes")}
        parts += _list_store_parts(name, store, own, machine, prices)
    priced = [(part, part.usd) for part in parts if part.usd is not None]
    usd, dates = sum(amount for _, amount in priced), sorted({part.as_of for part, _ in priced} - {""})
    shown = ", ".join(f"{amount:.2f} {part.words}" for part, amount in priced) or "no known prices"
    lacking = [part.words for part in parts if part.usd is None]
    line = (
        f"about {seconds / 3600:.1f} h, {totals['requests']:,.0f} requests, {totals['bytes'] / 2**30:,.0f} GiB;"
        f" about {usd:.2f} USD: {shown}"
        + (f"; prices of {' and '.join(dates)} ({PRICES})" if dates else "")
        + (f"; not counted: {', '.join(lacking)}" if lacking else "")
    )
    return Bill(usd, line)


def _build_machine_part(machine: Mapping | None, prices: Mapping, hours: float) -> _Part:
    if machine is None:
        example = next(iter(prices["us-east-1"]))
        return _Part(None, f"the machine (write machine: {{type: {example}, region: us-east-1}})")
    listed = prices.get(machine["region"], {}).get(machine["type"], {})
    hourly = machine.get("usd_per_hour", listed.get("usd_per_hour"))
    if hourly is None:
        where = f"{machine['type']} in {machine['region']}"
        return _Part(None, f"the machine ({PRICES} lacks {where}; add usd_per_hour to machine)")
    as_of = "" if "usd_per_hour" in machine else listed["as_of"]
    return _Part(hours * hourly, f"machine ({hours:.1f} h of {machine['type']} at {hourly:g})", as_of)


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
        price = out["usd_per_gib_internet" if place == OUTSIDE else "usd_per_gib_region"]
        words = f"transfer out of {region} ({own['bytes'] / 2**30:,.0f} GiB at {price:g})"
        yield _Part(own["bytes"] / 2**30 * price, words, out["as_of"])
