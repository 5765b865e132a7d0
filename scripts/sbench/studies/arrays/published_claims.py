"""Check claims of the published article on streaming in HSDS, and table labels that its data contradict."""

import pandas as pd

from sbench.design.claim import Claims

LIBRARY, SERVICE = "HDF5Lib", "HSDS"
# Size in bytes of the array, and of its chunks, which extend beyond its edges.
ARRAY, PADDED = 12000 * 2200 * 8, 12100 * 3000 * 8
claims = Claims(article="article_tables.csv", stream="stream_test.csv")


def _get_streamed_rates(article: pd.DataFrame, operation: str) -> pd.Series:
    """Return the printed stream_test rates (MB/s) by machine."""
    return article[article["test"] == "stream_test"].set_index("machine")[f"{operation}_MBps"]


def _get_rates(article: pd.DataFrame, operation: str, compression: str) -> pd.DataFrame:
    """Return the printed write_example rates (MB/s), one row per machine and one column per backend."""
    rows = article[(article["test"] == "write_example") & (article["compression"] == compression)]
    return rows.set_index(["machine", "backend"])[f"{operation}_MBps"].unstack(sort=False)


def _compare_backends(article: pd.DataFrame, operation: str, compression: str) -> pd.Series:
    """Return the ratio of the HDF5 library's rate to the rate of HSDS by machine."""
    rates = _get_rates(article, operation, compression)
    return rates[LIBRARY] / rates[SERVICE]


def _compare_fastest(article: pd.DataFrame, operation: str, compression: str) -> pd.Series:
    """Return the ratio of the faster backend's rate to the slower backend's by machine."""
    rates = _get_rates(article, operation, compression)
    return rates.max(axis="columns") / rates.min(axis="columns")


def _compare_compressions(article: pd.DataFrame, operation: str) -> pd.DataFrame:
    """Return the ratio of the rate with gzip to that without, one row per machine and one column per backend."""
    return _get_rates(article, operation, "gzip") / _get_rates(article, operation, "none")


def _compute_rates(stream: pd.DataFrame, operation: str) -> pd.Series:
    """Return the rates of an operation in MB/s, computed from bytes and seconds; 1 MB is 1,000,000 bytes."""
    rows = stream[stream["operation"] == operation]
    return rows["bytes"] / 1e6 / rows["seconds"]


@claims.quantifies("stream_test output", "75.77", "MB/s")
def write_rate_mb(stream):
    """elapsed: 2.66 s, 75.77 MB/s"""
    return _compute_rates(stream, "write")


@claims.quantifies("stream_test output", "177.93", "MB/s")
def read_rate_mb(stream):
    """elapsed: 1.13 s, 177.93 MB/s"""
    return _compute_rates(stream, "read")


@claims.compares("introduction", tested_by="the claim hsds-limit")
def no_limit():
    """the max request size limit no longer applies with the latest HSDS update"""


@claims.quantifies("text after table 2", "277", "MB", "arrays (compression)")
def padded():
    """the uncompressed size was 277 MB"""
    return PADDED / 1e6


@claims.quantifies("text after table 2", "39", "MB", "arrays (compression, values)")
def gzip_size():
    """the compressed size was only 39 MB"""


@claims.compares("text after table 2", "1", "factor, HSDS / HDF5Lib", "arrays: bytes as stored")
def sizes_of_both():
    """For this file (both with HSDS and HDF5Lib) the uncompressed size was 277 MB and the compressed size was only 39
    MB."""


@claims.quantifies("introduction", "100", "MB", "arrays: request just below and above max_request_size")
def default_limit():
    """This limit is configurable, but the default has been 100 MB."""


@claims.explains("introduction", tested_by="arrays: service without streaming (JSON path) against binary")
def limit_long_standing():
    """A long-standing constraint with the Highly Scalable Data Service (HSDS) has been how much data could be read or
    written with one HTTP request."""


@claims.explains("introduction", "413", "status", "arrays: request size x (JSON, binary, variable length): status")
def error_413():
    """This means if you tried to read or write any request with more than that many bytes, you would run into a 413 –
    Payload Too Large error."""


@claims.explains(
    "introduction",
    tested_by="arrays: memory of the service against request size, with streaming off and on, under a memory limit",
)
def out_of_memory():
    """but you would also need to be sure that the HSDS Docker containers or Kubernetes pods had sufficient RAM as
    well, otherwise the container would die with an out-of-memory exception."""


@claims.explains("introduction", tested_by="arrays: time to first byte against request size")
def client_timeout():
    """A related concern is that for very large read requests, the client could time out before any bytes were received
    from the server"""


@claims.explains("introduction", tested_by="arrays: time to first byte with and without streaming")
def assemble_before_send():
    """HSDS would need time to assemble all the bytes for the response before sending any data to the client."""


@claims.quantifies("introduction", "~30", "s", "arrays: client time-outs with a delayed first byte")
def thirty_seconds():
    """If this took longer than 30 seconds or so, the client may close the connection thinking the server was down."""


@claims.explains("introduction", tested_by="arrays: arrival times of bytes against fetch times of chunks")
def streamed_as_fetched():
    """In the new version, large requests are streamed back to the client as the bytes are fetched from storage."""


@claims.quantifies("introduction", tested_by="arrays: peak memory of the service nodes against request size")
def memory_limited():
    """Regardless of the size of the read request, the amount of memory used by the service is limited"""


@claims.compares("introduction", tested_by="arrays: time to first byte against time of the last chunk")
def first_bytes_early():
    """clients will start to see bytes coming back while the server is still processing the tail chunks in the
    selection."""


@claims.explains(
    "introduction",
    tested_by="arrays: memory and store traffic during a large PUT; acknowledged writes are flushed later",
)
def write_same():
    """The same applies for write operations—the service will fetch some bytes from the connection, update the storage,
    and fetch more bytes until the entire request is complete."""


@claims.quantifies("provisos", "413", "status", "arrays: JSON requests across the limit")
def json_limited():
    """Reading or writing with a JSON content type will still be limited to the max_request_size value."""


@claims.explains("provisos", tested_by="arrays: content type x size")
def only_binary():
    """First, this only works with binary requests."""


@claims.quantifies("provisos", tested_by="arrays: variable-length types x content type x size")
def varlen_limited():
    """Secondly, requests that use variable length types will still be limited to max_request_size regardless if the
    request is binary or JSON."""


@claims.explains("provisos")
def varlen_cause():
    """(Variable length types make the calculation of how much data to read or write to the stream a bit more
    complicated.)"""


@claims.quantifies("stream_test", "193", "MB", "arrays")
def array_193mb():
    """Initialize a nrow x ncol array (12000 x 2200 or 193MB by default)"""
    return ARRAY / 1e6


@claims.quantifies("stream_test", "200", "MB", "arrays")
def target_200mb():
    """running the test with a 200 MB target (12000 x 2200 dataset with an 8 byte int)"""
    return ARRAY / 1e6


@claims.quantifies("stream_test", "1", "requests", "arrays: requests counted at the service")
def one_request_write():
    """Write the entire array to a HDF5 dataset in one http binary request"""


@claims.quantifies("stream_test", "1", "requests", "arrays: requests counted at the service")
def one_request_read():
    """Read the array back in one http request"""


@claims.quantifies("stream_test output", "211200000", "bytes")
def test_data_bytes():
    """initializing test data (211200000 bytes, 201.42 MiB)"""
    return ARRAY


@claims.quantifies("stream_test output", "201.42", "MiB")
def test_data_mib():
    """initializing test data (211200000 bytes, 201.42 MiB)"""
    return ARRAY / 2**20


@claims.quantifies("stream_test output", tested_by="arrays")
def passed():
    """passed!"""


@claims.explains("stream_test")
def docker_linux_advantage():
    """the advantage of running Docker on Linux as compared with Mac OS, is that you don’t need a VM or Docker Desktop
    as containers run directly on the hardware."""


@claims.quantifies("stream_test", "42.2", "MB/s", "arrays")
def stream_write_macpro(article):
    """writing: 42.2 MB/s"""
    return _get_streamed_rates(article, "write")["macpro"]


@claims.quantifies("stream_test", "54.3", "MB/s", "arrays")
def stream_read_macpro(article):
    """reading: 54.3 MB/s"""
    return _get_streamed_rates(article, "read")["macpro"]


@claims.quantifies("stream_test", "290.0", "MB/s", "arrays")
def stream_write_devone(article):
    """writing: 290.0 MB/s"""
    return _get_streamed_rates(article, "write")["devone"]


@claims.quantifies("stream_test", "276.0", "MB/s", "arrays")
def stream_read_devone(article):
    """reading: 276.0 MB/s"""
    return _get_streamed_rates(article, "read")["devone"]


@claims.compares("stream_test", ">5", "factor", "arrays", operation=["write", "read"])
def five_times(article, operation):
    """More than a 5x speedup!"""
    rates = _get_streamed_rates(article, operation)
    return rates["devone"] / rates["macpro"]


@claims.compares("stream_test", ">1", "factor")
def ryzen_somewhat_faster():
    """The AMD Ryzen 7 on the Devone is somewhat faster than the Intel i7 on the MacBook"""


@claims.explains("stream_test")
def bulk_hypervisor():
    """I suspect the bulk of the difference is due to the extra time needed to translate I/O calls through the
    hypervisor layer when running Docker on MacOS."""


@claims.explains("h5pyd")
def client_tweaks():
    """To support streaming, there were some tweaks needed on the client side as well"""


@claims.quantifies("h5pyd", "0", "changes", "arrays: write_example unchanged")
def no_app_changes():
    """You won’t need to make any changes in your h5pyd applications"""


@claims.quantifies(
    "h5pyd",
    "any",
    "bytes",
    "arrays: request size to several times the limit and to the memory of a node; variable-length types stay limited",
)
def any_size():
    """you can now just directly write any size selection."""


@claims.quantifies("write_example", "1", "calls", "arrays: requests counted")
def write_example_one_call():
    """and then writes a numpy array to it in one call: dset2d[:, :] = arr[:, :]."""


@claims.explains("write_example")
def h5py_or_h5pyd():
    """if the file path starts with “hdf5://” h5pyd is used, otherwise h5py"""


@claims.compares("text after table 1", ">1", "factor", "arrays", operation=["write", "read"])
def library_much_faster(article, operation):
    """Not surprisingly, the HDF5 library was much faster for this test on all three test machines"""
    return _compare_backends(article, operation, "none")


@claims.explains(
    "text after table 1", tested_by="arrays: library with fsync and cold cache against page cache; raw device rate"
)
def library_disk_speed():
    """the library can pretty much go as fast as the disk will let it"""


@claims.explains(
    "text after table 1", tested_by="arrays: separate times of client, network, service node, data node and store"
)
def marshalled():
    """while with HSDS the data has to be marshaled from the client to the service and then to the disk."""


@claims.compares(
    "text after table 1", "~4", "factor", "arrays", name="slower-devone", machine="devone", operation=["write", "read"]
)
@claims.compares(
    "text after table 1", "~20", "factor", "arrays", name="slower-macpro", machine="macpro", operation=["write", "read"]
)
@claims.compares(
    "text after table 1",
    "~14",
    "factor",
    "arrays",
    name="slower-m5-2xlarge",
    machine="m5.2xlarge",
    operation=["write", "read"],
)
def slower(article, machine, operation):
    """DevOne system does best ~4x slower than the library compared with ~20x slow on the Mac (due to the
    virtualization overhead) or ~14x slower on the EC2 instance"""
    return _compare_backends(article, operation, "none")[machine]


@claims.compares(
    "text after table 1; tested against m5.2xlarge, the second best",
    "<1",
    "factor of library / HSDS, devone / m5.2xlarge",
    "arrays",
    operation=["write", "read"],
)
def devone_best(article, operation):
    """Comparatively though, the DevOne system does best"""
    factors = _compare_backends(article, operation, "none")
    return factors["devone"] / factors["m5.2xlarge"]


@claims.explains("text after table 1")
def virtualization_overhead():
    """~20x slow on the Mac (due to the virtualization overhead)"""


@claims.explains(
    "text after table 1",
    tested_by="arrays: store with added latency (0, 10, 50 ms a request) against a local disk, flushed and cold; the"
    " service acknowledges before it stores, so the time may exclude the store",
)
def s3_latency_cause():
    """~14x slower on the EC2 instance (due to S3 being much higher latency than an EBS volume)."""


@claims.compares("text after table 1", ">1", "factor", "arrays: S3 server against local disk")
def s3_latency_higher():
    """S3 being much higher latency than an EBS volume"""


@claims.compares(
    "text after table 2", "<1", "factor of faster / slower of both, gzip / none", "arrays", operation=["write", "read"]
)
def more_equivalent(article, operation):
    """Here the relative performance of HSDS and HDF5Lib were much more equivalent."""
    return _compare_fastest(article, operation, "gzip") / _compare_fastest(article, operation, "none")


@claims.compares("text after table 2", "2", "factor", "arrays")
def ec2_write_twice(article):
    """On the EC2 instance, write speed (to S3!) with HSDS was twice as fast as with the HDF5 lib (to an SSD drive)."""
    return 1 / _compare_backends(article, "write", "gzip")["m5.2xlarge"]


@claims.explains(
    "text after table 2",
    tested_by="arrays: number of data nodes / cores; compression inside or after the acknowledgement; CPU time"
    " per node",
)
def multiple_cores():
    """In this case, the overhead involved in marshaling the data to HSDS is made up by the HSDS’ ability to take
    advantage of multiple cores to do the data compression."""


@claims.compares("text after table 2", ">3", "factor", "the claim hsds-streaming")
def library_pulled_ahead(article):
    """The library pulled ahead on the read portion though with more than 3x the performance."""
    return _compare_backends(article, "read", "gzip")["m5.2xlarge"]


@claims.compares(
    "text after table 2; “slightly” taken as less than a fifth",
    ">0.8",
    "factor, macpro / devone",
    operation=["write", "read"],
)
def mac_library_slightly_worse(article, operation):
    """we see the library performance was just slightly worse"""
    rates = _get_rates(article, operation, "gzip")[LIBRARY]
    return rates["macpro"] / rates["devone"]


@claims.explains("text after table 2")
def older_hardware():
    """(due to generally older hardware)"""


@claims.compares("text after table 2", ">1", "factor", "arrays", operation="write")
@claims.compares("text after table 2", ">1", "factor", "arrays", operation=["read"])
def hsds_devone_much_better(article, operation):
    """HSDS however performed much better on the DevOne compared with the Mac (again mostly due to the virtualization
    penalty)."""
    rates = _get_rates(article, operation, "gzip")[SERVICE]
    return rates["devone"] / rates["macpro"]


@claims.explains("text after table 2")
def virtualization_penalty():
    """(again mostly due to the virtualization penalty)"""


@claims.compares("text after table 2", "~3", "factor", "arrays")
def devone_write_three(article):
    """HSDS writing compressed data worked quite well with the Dev One machine; almost 3x faster with HSDS compared
    with the HDF5 library."""
    return 1 / _compare_backends(article, "write", "gzip")["devone"]


@claims.compares("text after table 2", ">1", "factor", "arrays")
def as_with_ec2(article):
    """As with the EC2 instance, HSDS writing compressed data worked quite well with the Dev One machine"""
    return 1 / _compare_backends(article, "write", "gzip")[["devone", "m5.2xlarge"]]


@claims.compares("text after table 2", "~1.0", "factor", "arrays", operation=["write", "read"])
def compression_hardly_hsds(article, operation):
    """Turning on compression hardly affected performance with HSDS"""
    return _compare_compressions(article, operation)[SERVICE]


@claims.explains("text after table 2", "", "factor", "arrays: values that compress less")
def not_compress_as_well():
    """(though many datasets will not compress as well as this one)"""


@claims.compares(
    "text after table 2", "<1", "factor of gzip / none, library / HSDS", "arrays", operation=["write", "read"]
)
def compression_larger_impact(article, operation):
    """Compression did have a larger performance impact with HDF5"""
    factors = _compare_compressions(article, operation)
    return factors[LIBRARY] / factors[SERVICE]


@claims.explains("text after table 2", "", "MB/s", "arrays")
def may_not_matter():
    """but it may not matter that much in practice (even with compression, the read throughput was quite good)."""


@claims.quantifies("tables 1 and 2", "", "MB/s", "arrays")
def table_heading_1():
    """test machine write MB/s read MB/s write MB/s read MB/s"""


@claims.explains("end")
def simple_changes():
    """Oftentimes we can offer suggestions for simple changes that will make a big difference in performance."""


@claims.explains("introduction", tested_by="arrays: max_request_size as a factor")
def config_increase():
    """The max_request_size config could be increased"""


@claims.explains(
    "h5pyd", tested_by="arrays: a single request against pieces below the limit: rate and number of requests"
)
def breaking_up_writes():
    """if you’ve previously been breaking up writes into smaller pieces to get around the request size limit"""


@claims.quantifies("write_example", tested_by="arrays")
def verify_write_example():
    """Finally, we verify the original array and the copy actually are equivalent."""


# What computes labels (results/published/arrays/audit/labels.csv)


def compare_writes_of_devone(article):
    return _compare_fastest(article, "write", "none")["devone"]
