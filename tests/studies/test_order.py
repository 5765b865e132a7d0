"""The order of reads: what a page says of it is what a record reads."""

from sbench.drivers import UNSET, Access
from sbench.studies.shots import order
from sbench.studies.shots.measure import _Plan

MANIFEST = {
    "shots": ["1", "2"],
    "signals": ["a", "b"],
    "objects": {
        "1": {
            "a": {"file": "1.h5", "datasets": [["/a", 8, 0], ["/t", 8, 0]]},
            "b": {"file": "2.h5", "datasets": [["/b", 8, 0]]},
            "c": {"file": "1.h5", "datasets": [["/c", 8, 0, [[0, 4, 1]]]]},
        },
        "2": {"a": {"file": "1.h5", "datasets": [["/2/a", 8, 0]]}},
    },
}


def test_the_order_is_that_in_which_a_worker_reads():
    for access, objects in (("shots", ["2", "1"]), ("signals", ["b", "a"])):
        plan = _Plan(access, objects, MANIFEST, {"folder": "f"}, None, 1, "")
        read = [
            [address.removeprefix("f/"), path]
            for one in objects
            for batch in plan.build_batches(one, verify=False)
            for address, paths in batch.files
            for path, _ in paths
        ]
        described = order.describe_order(MANIFEST, access, objects)
        assert described["first"] == read[:4]
        assert (described["reads"], described["objects"]) == (len(read), objects)


def test_what_an_index_holds_need_not_come_from_the_store():
    entries = {"a": {"file": "1.h5", "datasets": [["/a", 8, 0]], "stored_bytes": [8]}}
    manifest = MANIFEST | {"objects": {"1": entries}}
    stored = {}
    for driver in ("s3fs", "virtualizarr", "kerchunk"):
        access = Access(driver, UNSET, 0)
        stored[driver] = _Plan("shots", ["1"], manifest, {"folder": "f"}, access, 1, "").count_stored_bytes()
    assert stored == {"s3fs": 8, "virtualizarr": 8, "kerchunk": None}


def test_another_order_or_place_has_another_hash():
    forth, back = (order.describe_order(MANIFEST, "shots", objects)["sha256"] for objects in (["1", "2"], ["2", "1"]))
    part = MANIFEST | {
        "objects": MANIFEST["objects"] | {"2": {"a": {"file": "1.h5", "datasets": [["/2/a", 8, 0, [[0, 1, 1]]]]}}}
    }
    assert len({forth, back, order.describe_order(part, "shots", ["1", "2"])["sha256"]}) == 3
