"""Measure a cell once: serve its data, run the measuring program, then check and write the record."""

import argparse
import contextlib
import csv
import gzip
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from sbench.design import blocks, checks, fingerprint, records, session
from sbench.design import study as studies
from sbench.measure.launches import Child, Ended, Window, get_program_name, merge_parts, merge_windows, stop_after
from sbench.probe import host, provenance, resources
from sbench.probe.program import Problem, read_json, replace_file, write_json
from sbench.stores import bare, faults, trust
from sbench.stores import network as networks
from sbench.stores import store as stores
from sbench.stores.embedded import EXCHANGE, Served
from sbench.stores.store import Store

# Environment variables that could silently affect measurements: settings of clouds, Python, Dask, HDF5 and the linker.
_NOT_INHERITED = ("AWS_", "AZURE_", "PYTHON", "DASK_", "HDF5_", "LD_LIBRARY_PATH", "LD_PRELOAD")


# Defaults for studies without a library under test, which run in the workflow's interpreter, and for studies without
# data.
_OWN: dict = {"python": sys.executable, "lock_sha256": None, "build": None, "promised": {}}
_NO_DATA: dict = {"manifest": None, "local_files": [], "location": None, "data_sha256": None}


def require_artefact(path: Path) -> dict:
    """Read an artefact that the job requires.

    Raises:
        Ended: the artefact is failed, or was skipped because an earlier one failed. The message contains the reasons of
            the first failure.
    """
    artefact = read_json(path)
    if artefact.get("status") == "done":
        return artefact
    words, cause = "; ".join(artefact.get("reasons", ["no reason given"])), artefact.get("cause")
    raise Ended(words if cause else f"{path} failed: {words}", cause=cause or str(path))


def _list_once(lists: Iterable[list[str]]) -> list[str]:
    return list(dict.fromkeys(line for lines in lists for line in lines))


def build_base_record(arguments: argparse.Namespace) -> dict:
    """Return the entries that every record has, including those of failed measurements."""
    plan = read_json(arguments.plan)
    return {
        **{"record": 1, "run": plan["run"], "study": plan["study"], "name": arguments.cell},
        "cell": plan["cells"][arguments.cell]["settings"]["cell"],
        **{"repeat": arguments.repeat, "session": arguments.session, "valid": False},
    }


def measure_cell(arguments: argparse.Namespace, log: IO[str], servers_log: IO[str]) -> None:
    """Measure a cell once and write its record.

    Do nothing if the record exists, even if it is failed, because blocks are never completed later.
    """
    with contextlib.suppress(Problem):
        if "status" in read_json(arguments.out):
            print(f"{arguments.out} exists and is kept; sbench run --again measures its cell again", file=log)
            return
    began, started, uptime_s = time.monotonic(), session.get_session_time(), session.get_uptime_s()
    for needed in blocks.read_needs(arguments.blocks, arguments.repeat):
        require_artefact(needed)
    plan = read_json(arguments.plan)
    cell = plan["cells"][arguments.cell]
    settings, study = cell["settings"], studies.get_study(plan["study"])
    environment: dict = require_artefact(arguments.environment) if arguments.environment else _OWN
    fingerprint.expect_unchanged(environment)
    provision: dict = require_artefact(arguments.provision) if arguments.provision else _NO_DATA
    manifest = read_json(provision["manifest"]) if provision["manifest"] else {}
    files = [Path(name) for name in provision["local_files"]]
    if missing := [str(file) for file in files if not file.exists()]:
        raise Problem(f"{missing[0]} is gone; remove {arguments.provision} and run again")
    store = stores.get_store(settings["store"])
    facts = host.read_facts(files[0] if files else settings["store"].get("path", "."))
    fault = faults.plan_fault(settings["cell"].get("fault", faults.NONE), settings["seed"], arguments.repeat)
    unknown = "elsewhere" if store.elsewhere else "unverified"
    job = {"settings": settings, "run": plan["run"], "repeat": arguments.repeat, "far": store.is_networked}
    job |= {"manifest": provision["manifest"], "local_files": provision["local_files"]}
    job |= {"time_limit_s": cell["time_limit_s"]}
    launches, parts, windows, network = settings.get("launches", 1), [], [], None
    served: Served | None = None
    location: dict = {}
    env: dict[str, str] = {}
    with contextlib.ExitStack() as limits:
        for number in range(launches):
            # Restart the server too, since its performance can vary between launches as well.
            with contextlib.ExitStack() as stack:
                served, location, env = stores.serve_dataset(
                    stack, settings["store"], provision, filter_environment(), arguments.servers, servers_log, fault
                )
                job |= {"location": location, "scratch": str(_make_scratch_folder(stack, arguments.out))}
                job |= {"served_folder": str(served.folder) if served else None}
                job |= {"is_last_launch": number == launches - 1}
                if number == 0 and store.is_networked and manifest:
                    network = _measure_network(arguments, store, settings, manifest, location, env)
                if number == 0:
                    limits.enter_context(stop_after(get_program_name(settings["study"]), cell["time_limit_s"]))
                is_wrapped = settings["store"].get("tls") and not trust.describe_mount_obstacle()
                python = [*(trust.build_command_prefix(env) if is_wrapped else ()), environment["python"]]
                with _report_injected_faults(served, fault):
                    child = Child(stack, python, settings["study"], job, env, log)
                    meter = resources.Meter({"reader": child.pid, **(served.list_pids() if served else {})})
                    windows.append(Window(settings["cell"].get("cache", "any"), files, served, unknown, meter))
                    parts.append(child.receive_record(windows[-1], served))
    record, window = merge_parts(parts), merge_windows(windows)
    record |= {"cache": window.cache | record.get("cache", {}), "requests": window.requests}
    window.resources["reader"]["peak_bytes"] = record.pop("peak_bytes")
    record["resources"] = window.resources
    if len(set(record.get("effective", {}).get("ran_on", []))) > 1:
        # The CPU time measured here would only cover some of the reader's processes.
        record["resources"]["reader"] |= {"user_s": None, "system_s": None}
    record["network"] = network and {**network, **networks.compute_in_flight(window.passed)}
    if fault and window.passed:
        record["injected"] = faults.record_fault(fault, window.passed)
    facts["load_after"] = list(os.getloadavg())
    # If the program measured on another host, it returned that host's facts.
    facts = record.pop("host", facts)
    if replaced := store.list_replaced_files(manifest.get("files", []), location, env):
        raise Problem(
            f"{replaced[0]} was replaced or changed after its examination; stop the program that writes to it, remove"
            f" {provision['manifest']} and run again"
        )
    # Check the effective settings of every launch; the merged record contains only those of the last.
    launched = [record | {"effective": part["effective"]} if "effective" in part else record for part in parts]
    if failed := _list_once(study.check_label(one, settings, manifest) for one in launched):
        raise Problem("; ".join(failed))
    amiss = _list_once(study.check_record(one, settings) for one in launched)
    if window.passed:
        # Compare the bytes through an emulated network with its hard bound (METHOD 20).
        amiss += checks.check_rate(settings["store"].get("network"), window.passed["sent"], window.seconds)
        _save_exchanges(arguments, window.passed)
    amiss += checks.check_wait(settings["cell"].get("control", ""), record["work"])
    modules, seen = record.pop("modules"), record.pop("software")
    fingerprint.expect_promised(environment, seen)
    servers = served.processes if served else {}
    records.write_record(
        arguments.out,
        {
            **build_base_record(arguments),
            "status": "done",
            "settings": settings,
            **_compute_place(plan, arguments),
            "seed": settings["seed"],
            "started_utc": started,
            "started_uptime_s": uptime_s,
            "step_seconds": time.monotonic() - began,
            **record,
            "host": facts,
            "provenance": {
                **provenance.describe_code(
                    [
                        *provenance.list_loaded_modules(),
                        *provenance.list_package_modules("probe", "stores", "drivers"),
                        *modules,
                    ]
                ),
                **{key: provision.get(key) for key in ("data_sha256", "account_url", "part_bytes")},
                **{key: environment[key] for key in ("lock_sha256", "build")},
                "software": fingerprint.save_fingerprint(
                    arguments.plan.with_name("software"), seen, servers, environment
                ),
            },
            "valid": not amiss,
            "reasons": amiss,
        },
    )


@contextlib.contextmanager
def _report_injected_faults(served: Served | None, fault: dict | None) -> Iterator[None]:
    """Add information on injected faults to a failure in the `with` block.

    Failures are not changed if a server ended, the cell cannot read the data, or no fault was injected yet.
    """
    try:
        yield
    except Problem as problem:
        also = getattr(problem, "also", {})
        if not (fault and served and served.proxy) or served.list_dead_servers() or "unable" in also:
            raise
        injected = faults.record_fault(fault, served.proxy.fetch_traffic())
        if not injected["count"]:
            raise
        raise Ended(str(problem), **also, injected=injected) from problem


def _compute_place(plan: dict, arguments: argparse.Namespace) -> dict:
    """Return the entries of a record that locate it in the sequence of measurements.

    These are `position`, which counts from 0, block after block, `block_cells`, the number of cells in the block, and,
    in runs that measure until they can decide, `round` and `most_repeats`.
    """
    names, repeat = list(plan["cells"]), int(arguments.repeat)
    order = blocks.Order([])
    if arguments.blocks:
        opened = blocks.read_blocks(arguments.blocks)
        order = blocks.get_order(opened, arguments.blocks.with_name("looks"), repeat)
    measured = order.select_cells(names)
    in_block = blocks.build_order(measured, plan["order"]["seed"], repeat, order.draw)
    place = {"position": (repeat - 1) * len(names) + in_block.index(arguments.cell), "block_cells": len(measured)}
    if most := plan["order"].get("most_repeats"):
        place |= {"round": order.round, "most_repeats": most}
    return place


def get_scratch_folder(out: Path) -> Path:
    """Return the folder for temporary files of the measuring program. If the job is killed, the folder remains."""
    return out.with_name(f".{out.stem}.scratch")


def _make_scratch_folder(stack: contextlib.ExitStack, out: Path) -> Path:
    """Create an empty folder for temporary files of the measuring program. Closing `stack` removes it."""
    folder = get_scratch_folder(out)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # Try twice, in case the first removal fails temporarily.
    for _ in range(2):
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder.absolute()


def _measure_network(
    arguments: argparse.Namespace, store: Store, settings: dict, manifest: dict, location: dict, env: dict[str, str]
) -> dict:
    """Measure the network between this node and a store, once per session and node (METHOD 20).

    Returns:
        The result of `networks.measure_network`, or {"problem": message}. Later cells get the stored result.
    """
    measured_here = arguments.plan.parents[1] / "networks" / arguments.session / host.get_node_name()
    where = measured_here / f"{settings['cell']['store']}.json"
    with contextlib.suppress(Problem):
        return read_json(where)
    entry = max(manifest["files"], key=lambda entry: entry["bytes"])
    try:
        getter = bare.Http(store.sign_addresses(location, [entry["name"]], env))
        measured = networks.measure_network(getter, entry["name"], min(entry["bytes"], networks.READ_BYTES))
    except Problem as problem:
        measured = {"problem": str(problem)}
    write_json(where, measured)
    return measured


def _save_exchanges(arguments: argparse.Namespace, passed: dict) -> None:
    """Write the requests of a measurement, with byte ranges and times, unless an earlier repeat has written them."""
    path = arguments.out.with_name(records.REQUESTS)
    if path.exists() or passed["unread"]:
        return
    with replace_file(path) as part, gzip.open(part, "wt", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, ["repeat", *EXCHANGE], extrasaction="ignore")
        table.writeheader()
        table.writerows({"repeat": arguments.repeat, **exchange} for exchange in passed["exchanges"])


def filter_environment() -> dict[str, str]:
    """Return the environment variables without those that could silently affect measurements.

    AWS configuration files are disabled too, because they contain settings as well as credentials. The job passes a
    store's credentials separately (see `sbench.stores.store`).
    """
    env = {key: value for key, value in os.environ.items() if not key.startswith(_NOT_INHERITED)}
    nothing = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "DASK_CONFIG"), os.devnull)
    return env | nothing | {"AWS_EC2_METADATA_DISABLED": "true"}
