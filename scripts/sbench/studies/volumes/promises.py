"""Compute the documented performance of an AWS EBS volume from its type and size.

The documented limits are in config/facts/volume_types.yaml.
"""

import math
from typing import NamedTuple

from sbench.studies.volumes.config_files import VOLUME_TYPES, read_facts

_GIB_PER_TIB = 1024


class Volume(NamedTuple):
    """The documented performance of a volume. Values that depend on an unknown type or size are NaN.

    Attributes:
        volume_type: type as AWS names it, such as gp2.
        size_gib: size in GiB.
        baseline_iops: IOPS that the volume always delivers.
        burst_iops: IOPS that it delivers while it has credits.
        credits: capacity of the credit bucket in I/Os; NaN if the volume has no burst credits to spend.
        ceiling_mib_s: maximum throughput in MiB/s.
        note: caveats, such as a type or a size that is not documented.
    """

    volume_type: str
    size_gib: float
    baseline_iops: float
    burst_iops: float
    credits: float
    ceiling_mib_s: float
    note: str


def compute_promises(volume: dict) -> Volume:
    """Compute a volume's documented performance from its `type`, `size_gib`, `iops` and `throughput_mib_s`."""
    name = volume.get("type") or ""
    size, iops, throughput = (
        math.nan if volume.get(key) is None else float(volume[key]) for key in ("size_gib", "iops", "throughput_mib_s")
    )
    documented = read_facts(VOLUME_TYPES)
    if name not in documented["types"]:
        note = f"{name} is not in {VOLUME_TYPES}" if name else ""
        return Volume(name, size, *[math.nan] * 4, note)
    facts = documented["types"][name]
    baseline, burst = _compute_iops(facts["iops"], size, iops)
    bucket = math.nan if baseline >= burst else facts["iops"].get("credits", math.nan)
    least, most = facts["size_gib"]
    notes = []
    if not (math.isnan(size) or least <= size <= most):
        notes.append(f"{name} volumes had {least} to {most:,} GiB in {documented['as_of']}, this volume has {size:g}")
    if "burst_per_tib" in facts["throughput_mib_s"]:
        notes.append(f"the throughput of {name} bursts on credits, which are not modelled")
    ceiling = _compute_throughput(facts["throughput_mib_s"], size, baseline) if math.isnan(throughput) else throughput
    return Volume(name, size, baseline, burst, bucket, ceiling, "; ".join(notes))


def compute_lead_time(volume: Volume, state: str) -> dict[str, float]:
    """Return the time ("seconds") and device I/Os ("ios") that it takes to refill or to spend a volume's credits.

    Refilling assumes an empty bucket, since earlier work may have used credits. Spending drains a full bucket at the
    burst rate. The time is infinite for volumes without credits.
    """
    if math.isnan(volume.credits + volume.baseline_iops):
        return {"seconds": math.inf, "ios": 0.0}
    full = state == "full"
    lasting = volume.credits / (volume.baseline_iops if full else volume.burst_iops - volume.baseline_iops)
    return {"seconds": math.ceil(lasting), "ios": 0.0 if full else volume.burst_iops * lasting}


def _compute_iops(facts: dict, size: float, provisioned: float) -> tuple[float, float]:
    """Return the IOPS that a volume sustains, and the IOPS that it reaches while it has burst credits."""
    if "per_gib" in facts:
        baseline = float(min(max(facts["per_gib"] * size, facts["least"]), facts["most"]))
        return baseline, max(baseline, facts["burst"])
    baseline = float(facts.get("included", math.nan)) if math.isnan(provisioned) else provisioned
    return baseline, baseline


def _compute_throughput(facts: dict, size: float, iops: float) -> float:
    """Return a volume's maximum throughput in MiB/s; NaN if it depends on an unknown size or IOPS rate."""
    if "up_to_170_gib" in facts:
        return math.nan if math.isnan(size) else float(facts["up_to_170_gib" if size <= 170 else "beyond"])
    factors = {"included": 1.0, "per_iops": iops, "burst_per_tib": size / _GIB_PER_TIB}
    plain = sum(facts[name] * factor for name, factor in factors.items() if name in facts)
    beyond = min(facts.get("per_iops_beyond", 0) * iops, facts.get("most_beyond", 0))
    return max(min(plain, facts.get("most", math.inf)), beyond)
