"""Report the requests of a program as text and JSON."""

import math
import sys
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path

from sbench.design import prices
from sbench.files import ranges
from sbench.files.buckets import Requests, get_network
from sbench.files.count import Count, Query, estimate_seconds
from sbench.probe import sizes
from sbench.probe.program import write_json
from sbench.stores import network as networks

_WORTH_NAMING = 1.005
_RUNS = 1000
NO_REQUESTS = (
    "no request reached the server; the client may not read AWS_ENDPOINT_URL (docs/count.md lists the variable of each"
    " client), or the program may read local files"
)
_NO_TRUST = (
    "the client may not read the variables with the file of authorities to trust (docs/count.md lists them), or it does"
    " not use TLS"
)


def report(count: Count, query: Query, top: int, path: Path | None = None) -> None:
    """Print the report to standard error, because standard output belongs to the program; write JSON to `path`."""
    print(*format_count(count, query, top), sep="\n", file=sys.stderr)
    if path:
        write_json(path, build_json(count, query))


def build_json(count: Count, query: Query) -> dict:
    """Return the counts as a JSON object, with the command and each request."""
    requests = count.requests
    totals = ranges.add_totals(requests.objects.values())
    return {
        "command": [word.encode(errors="surrogateescape").decode(errors="replace") for word in query.command],
        "status": count.status,
        "seconds": count.seconds,
        "requests": requests.methods,
        "connections": requests.passed["connections"],
        "handshakes": {"all": requests.passed["handshakes"], "failed": requests.passed["refused"]},
        "network": dict(query.network),
        "cost": compute_cost(requests),
        "gets": totals._asdict(),
        "objects": {name: totals._asdict() for name, totals in requests.objects.items()},
        "exchanges": requests.passed["exchanges"],
    }


def compute_cost(requests: Requests) -> dict:
    """Return the list prices of the requests of 1,000 runs of the program, in US dollars.

    Returns:
        `requests_usd_per_1000_runs`; `internet_usd_per_1000_runs`, in addition if the bytes leave the cloud (None
            without a price); `prices`, the service and the region with these prices; and `as_of`, their dates.
    """
    rates = prices.get_emulated_rates()
    outside = prices.get_emulated_rates({"region": prices.OUTSIDE})
    counts = prices.count_billed(requests.methods)
    internet = _RUNS * outside.usd["bytes"] * ranges.add_totals(requests.objects.values()).sent
    return {
        "requests_usd_per_1000_runs": _RUNS * rates.compute_usd(counts),
        "internet_usd_per_1000_runs": None if math.isnan(internet) else internet,
        "prices": rates.title,
        "as_of": list(outside.dates),
    }


def format_count(count: Count, query: Query, top: int) -> Iterator[str]:
    """Yield the lines of the report; `top` is the number of objects to list."""
    requests, methods = count.requests, count.requests.methods
    handshakes, refused = requests.passed["handshakes"], requests.passed["refused"]
    # Some clients judge the certificate after the handshake.
    if refused or (handshakes and not methods):
        yield f"{sizes.format_count(refused or handshakes, 'TLS connection')} failed; {_NO_TRUST}"
    if not methods and not requests.counted:
        if count.status:
            yield f"the program ended with status {count.status}"
        elif not handshakes:
            yield NO_REQUESTS
        return
    number = sum(numbers["count"] for numbers in methods.values())
    failed = sum(numbers["failed"] for numbers in methods.values())
    parts = ", ".join(f"{numbers['count']:,} {method}" for method, numbers in methods.items())
    connections = sizes.format_count(requests.passed["connections"], "connection")
    yield f"{sizes.format_count(number, 'request')}: {parts}{f'; {failed:,} failed' if failed else ''}; {connections}"
    counted = sum(numbers["count"] for numbers in requests.counted.values())
    if number != counted:
        yield f"the server counted {counted:,} requests instead of {number:,}: some were aborted or pipelined"
    totals = ranges.add_totals(requests.objects.values())
    if totals.requests:
        yield from _format_totals(totals, count, query)
    if uploaded := sum(row["uploaded"] for row in requests.passed["exchanges"]):
        yield f"{sizes.format_size(uploaded)} uploaded"
    yield _format_times(count, query)
    yield from _format_cost(requests)
    yield from _format_objects(requests.objects, top)


def _format_totals(totals: ranges.Totals, count: Count, query: Query) -> Iterator[str]:
    sent, distinct = sizes.format_size(totals.sent), sizes.format_size(totals.distinct)
    factor = totals.sent / totals.distinct if totals.distinct else 1
    times = f", ×{factor:.3g}" if factor >= _WORTH_NAMING else ""
    yield f"{sent} sent in {sizes.format_count(totals.requests, 'GET')}, {distinct} of them distinct{times}"
    if totals.repeated:
        yield f"{sizes.format_count(totals.repeated, 'GET')} fetched only bytes that earlier ones had fetched"
    if totals.runs < totals.requests - totals.repeated:
        runs, gap = sizes.format_count(totals.runs, "request"), sizes.format_size(count.requests.gap)
        yield (
            f"{runs} would fetch the same, if ranges up to {gap} apart were merged"
            f" ({_format_network(query)} transfer this in a round trip)"
        )


def _format_times(count: Count, query: Query) -> str:
    rows = count.requests.passed["exchanges"]
    spans = ranges.merge_ranges((row["begin"], row["end"]) for row in rows if row["end"])
    busy = sum(end - begin for begin, end in spans)
    in_flight = networks.compute_in_flight(count.requests.passed)["in_flight"] or 0
    emulated = (
        "" if query.network else f"; at {_format_network(query)} about {estimate_seconds(count, query.network):.3g} s"
    )
    return f"{busy:.3g} s of {count.seconds:.3g} s with requests in flight, {in_flight:.2g} on average{emulated}"


def _format_cost(requests: Requests) -> Iterator[str]:
    cost = compute_cost(requests)
    more = ""
    if internet := cost["internet_usd_per_1000_runs"]:
        more = f", and {_format_usd(internet)} USD more if the bytes sent leave the cloud"
    yield (
        f"{_RUNS:,} such runs cost {_format_usd(cost['requests_usd_per_1000_runs'])} USD, as requests to"
        f" {cost['prices']}{more} (list prices of {' and '.join(cost['as_of'])}, without the machine)"
    )
    if old := prices.describe_age(cost["as_of"], date.today()):
        yield old


def _format_usd(usd: float) -> str:
    return f"{usd:.3g}" if usd < 100 else f"{usd:,.0f}"


def _format_network(query: Query) -> str:
    latency_ms, rate = get_network(query.network)
    return f"{latency_ms:g} ms and {rate:g} MiB/s"


def _format_objects(objects: Mapping[str, ranges.Totals], top: int) -> Iterator[str]:
    by_size = sorted(objects.items(), key=lambda item: (-item[1].sent, -item[1].requests))
    shown = [(name, totals) for name, totals in by_size if totals.requests][:top]
    if shown:
        yield f"{'GETs':>8} {'sent':>12} {'distinct':>12} {'merged':>8}  object"
    for name, totals in shown:
        sent, distinct = sizes.format_size(totals.sent), sizes.format_size(totals.distinct)
        yield f"{totals.requests:8,} {sent:>12} {distinct:>12} {totals.runs:8,}  {name}"
    if (left := sum(bool(totals.requests) for _, totals in by_size) - len(shown)) > 0:
        yield f"… and {sizes.format_count(left, 'more object')}; --top {len(shown) + left} lists all"
