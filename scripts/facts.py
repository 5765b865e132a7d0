"""Gathers what a report says about a run beside its figures: machines, libraries, stores, settings, failed attempts."""

import argparse
import contextlib
import json
from pathlib import Path

from scripts import check
from scripts.frame import matrix, records
from scripts.lib.program import Problem, json_object, read_json, run, write_json

_SERVERS = {
    "s3": ("an S3 server", "AWS or another service"),
    "azure-blob": ("Azurite, Microsoft's emulator of Azure Storage,", "Azure"),
}

# Types of file systems whose files lie on other machines.
_FAR = {"lustre", "nfs", "nfs4", "cifs", "smb3", "ceph", "gpfs", "beegfs", "glusterfs", "9p", "fuse.sshfs"}


def main(argv: list[str] | None = None) -> int:
    """Write facts.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, type=json_object, help="the resolved configuration, JSON")
    parser.add_argument("--study", required=True, help="name of the study")
    parser.add_argument("--results", required=True, type=Path, help="the run's folder in results/")
    parser.add_argument("--out", required=True, type=Path, help="facts.json to write")
    arguments = parser.parse_args(argv)
    write_json(arguments.out, facts(arguments.config, arguments.study, arguments.results))
    return 0


def facts(config: dict, study: str, results: Path) -> dict:
    """Return what the report of a study says about its run, from the records and artefacts in `results`."""
    plan = read_json(results / study / "plan.json")
    named = [
        (cell, record)
        for cell in plan["cells"]
        for _, path in records.repeats(results / study / "records" / cell)
        if (record := _readable(path, config["run"], study, plan["cells"][cell].get("settings", {}).get("cell")))
    ]
    everything = [record for _, record in named]
    measured = [record for record in everything if record["status"] == "done"]
    imported = _whole(results / study / "imported.json") or {}
    batteries = [*everything, *(one for one in imported.get("records", []) if records.is_sound(one))]
    machines = [_constant(host) for record in measured for host in hosts_of(record)]
    machines = list({json.dumps(one, sort_keys=True): one for one in machines}.values())
    return {
        "run": config["run"],
        "study": study,
        "question": config["studies"][study]["question"],
        "repeats": len(matrix.repeats(config, study)),
        "equivalence_percent": config["equivalence_percent"],
        "machine": next(iter(machines), {}),
        "machines": machines,
        "libraries": {name: _library(results / "environments" / f"{name}.json") for name in config["libraries"]},
        "stores": config["stores"],
        "settings": config["studies"][study],
        "data": {name: _data(results / "data" / name / "manifest.json") for name in sorted(_datasets(plan))},
        "not_provided": not_provided(_datasets(plan), results / "data"),
        "limits": [
            *(
                line
                for name, types in _stores_used(measured).items()
                for line in _limits(name, config["stores"][name], types)
            ),
            *unsealed(measured),
        ],
        "readers": [reader(cell, record) for cell, record in named if "memory" in record],
        "jobs": _jobs(plan),
        "batteries": [_battery(record) for record in batteries if record.get("battery")],
        "left_out": imported.get("left_out", []),
        "sessions": sorted({record["session"] for record in measured if "session" in record}),
        "code": sorted({record["provenance"]["code_sha256"] for record in measured}),
        "git": sorted({record["provenance"].get("git") or "no clone" for record in measured}),
        "dirty": any(record["provenance"].get("dirty") for record in measured),
        "failed_attempts": failed_attempts(results),
    }


def failed_attempts(results: Path) -> list[dict]:
    """Return the artefacts of earlier attempts that failed or could not be used, oldest first."""
    attempts = []
    for attempt in sorted((results / "failed").glob("*/")):
        attempts += [
            {
                "attempt": attempt.name,
                "what": str(path.relative_to(attempt.parent)),
                "reasons": check.reasons_of(path, attempt, results.name),
            }
            for path in sorted(attempt.glob("**/*.json"))
        ]
    return attempts


def _jobs(plan: dict) -> dict[str, dict]:
    """Return the job files of a study that has some, by name."""
    named = [cell["settings"].get("job") for cell in plan["cells"].values()]
    return {job["name"]: {"text": job["text"]} for job in named if job}


def _battery(record: dict) -> dict:
    """Return what a report says about one battery of fio jobs, measured here or imported."""
    return {
        **record["battery"],
        **{factor: record["cell"].get(factor, "") for factor in ("store", "job", "background", "host")},
        "position": record.get("position"),
        "fio": record.get("fio"),
        "volume": record.get("volume") or {},
        "options": record.get("job_options", {}),
        "reasons": record.get("reasons", []),
    }


def reader(cell: str, record: dict) -> dict:
    """Return what a report says about the MPI processes of one record, in the cell of that name."""
    parts = ("effective", "memory", "retries", "attempts", "ceiling")
    return {
        "cell": cell,
        "repeat": record["repeat"],
        "levels": record["cell"],
        **{part: record.get(part) for part in parts},
        "requests": record.get("requests", {}),
    }


def hosts_of(record: dict) -> list[dict]:
    """Return the machines that measured a record: its own, or those of its processes where they were elsewhere."""
    own = record["host"]
    others = [host for host in (record.get("effective") or {}).get("hosts") or [] if "cpu" in host]
    if all(host.get("node") == own.get("node") for host in others):
        return [own]
    return [{key: value for key, value in host.items() if key not in ("name", "processes")} for host in others]


def _constant(host: dict) -> dict:
    return {key: value for key, value in host.items() if not key.startswith("load_")}


def _readable(path: Path, run_name: str, study: str, levels: dict[str, str] | None) -> dict | None:
    """Return a record, or None where it cannot be used, which `scripts.tables` says and counts as failed."""
    with contextlib.suppress(Problem):
        return records.read(path, run_name, study, levels)


def _whole(path: Path) -> dict | None:
    """Return an artefact, or None where there is none, or it is broken."""
    with contextlib.suppress(Problem):
        return read_json(path)


def unsealed(measured: list[dict]) -> list[str]:
    """Return how many records are from before there were digests."""
    count = sum(not records.sealed(record) for record in measured)
    if not count:
        return []
    return [
        f"{count} of {len(measured)} records are from before records had a digest: whether they were edited since they "
        "were written is not known, and they count"
    ]


def _library(path: Path) -> dict:
    return read_json(path) if path.exists() else {"status": "failed", "reasons": ["it was not built"]}


def _data(path: Path) -> dict:
    """What the report says of a data set; nothing where it was removed, as each record has its checksum."""
    if not path.exists():
        return {}
    manifest = read_json(path)
    return {
        "status": manifest["status"],
        "layout": manifest.get("layout"),
        "bytes": sum(file["bytes"] for file in manifest.get("files", [])),
    }


def not_provided(datasets: set[str], folder: Path) -> list[str]:
    """Return a line for each data set that could not be made or put into a store: its cells were not measured."""
    lines = []
    for name in sorted(datasets):
        made = _whole(folder / name / "manifest.json") or {}
        if made.get("status") == "failed":
            lines.append(f"{name} could not be made: {'; '.join(made['reasons'])}")
            continue
        for path in sorted(folder.glob(f"{name}/*.json")):
            put = _whole(path) or {}
            if put.get("status") == "failed":
                lines.append(f"{name} could not be put into {path.stem}: {'; '.join(put['reasons'])}")
    return lines


def _datasets(plan: dict) -> set[str]:
    return {cell["dataset"] for cell in plan["cells"].values() if cell["dataset"]}


def _stores_used(records: list[dict]) -> dict[str, set[str]]:
    """Return the stores that were read, each with the types of file systems that its files lay on."""
    found: dict[str, set[str]] = {}
    for record in records:
        found.setdefault(record["cell"]["store"], set()).add(record["host"].get("file_system") or "")
    return dict(sorted(found.items()))


def _limits(name: str, store: dict, file_systems: set[str]) -> list[str]:
    """Return what the figures of a store cannot say (METHOD 22)."""
    if store["kind"] == "posix" and (far := sorted(file_systems & _FAR)):
        return [
            f"{name}: a file system elsewhere ({', '.join(far)}); its servers' caches and other users are not known"
        ]
    if store["kind"] == "posix":
        return [
            f"{name}: a local file system; what the hypervisor and the device keep in their caches is not controlled"
        ]
    if store.get("server") != "embedded":
        return [f"{name}: the service's own caches and its other users are not controlled"]
    network = store.get("network")
    if network is None:
        emulated = "no network at all"
    else:
        latency, jitter, rate = network["latency_ms"], network["jitter_ms"], network["bandwidth_mib_s"]
        emulated = (
            f"an emulated network: {latency} ms"
            + (f" ± {jitter} ms" if jitter else "")
            + (f", {rate:g} MiB/s a connection" if rate else "")
        )
    server, others = _SERVERS[store["kind"]]
    return [
        f"{name}: {server} on the loopback of the same machine, whose cores it shares with what reads, {emulated}, "
        f"no TLS; not a verdict for {others}"
    ]


if __name__ == "__main__":
    run(main)
