"""Check the claims and the labels of the published study of loading with Dask against its data.

The docstrings of the decorated functions are quotations from that study.
"""

import pandas as pd

from sbench.design.claim import Claims

A, B = "snapshot_033 (12 chunks)", "snapshot_028_z000p000 (32 chunks)"
X10, X2000 = "x10 (320 chunks)", "x2000 (64000 chunks)"
LOAD, SUM, CHUNKED_SUM = "serial_read_concat", "serial_read_concat.sum", "manual_sum_by_chunk"
DELAYED_LOAD, FUTURES_LOAD, ARRAY_LOAD = "delay_then_concat", "in_mem_from_dask_futures", "read_delayed_array"
ARRAY_SUM, FUTURES_SUM = "read_delayed_array.sum", "sum_of_futures"
DASK_LOADS, DASK_SUMS = [DELAYED_LOAD, FUTURES_LOAD, ARRAY_LOAD], [ARRAY_SUM, FUTURES_SUM]
SERIAL, FUTURES, ARRAYS = [LOAD, SUM, CHUNKED_SUM], [FUTURES_LOAD, FUTURES_SUM], [ARRAY_LOAD, ARRAY_SUM]
# Number of particles of the second snapshot, in millions.
PARTICLES_B = 6.381559
claims = Claims(timings="timings_from_notebook.csv")


def _compare_methods(timings: pd.DataFrame, methods: list[str], against: list[str], *stages: str) -> pd.Series:
    """Return the ratio of mean times of `methods` to `against`, for each stage and kind, in all or the given stages."""
    rows, base = (timings[timings["method"].isin(names)] for names in (methods, against))
    both = rows.merge(base, on=["stage", "kind"], suffixes=("", "_base")).set_index(["stage", "kind", "method"])
    factors = both["mean_s"] / both["mean_s_base"]
    return factors[factors.index.isin(stages or [A, B, X10, X2000], level="stage")]


def _compare_snapshots(timings: pd.DataFrame) -> pd.Series:
    """Compare the time ratios Dask / serial loop between snapshots.

    Return, for each kind, the largest ratio with 32 chunks divided by the smallest ratio with 12 chunks.
    """
    factors = _compare_methods(timings, [*DASK_LOADS, *DASK_SUMS], [LOAD, SUM])
    return factors[B].groupby("kind").max() / factors[A].groupby("kind").min()


def _get_times(timings: pd.DataFrame, method: str, stage: str) -> pd.Series:
    """Return the mean times (s) of a method in a stage."""
    return timings[(timings["method"] == method) & (timings["stage"] == stage)]["mean_s"]


@claims.compares("after cell 28", "<1", "factor of Dask / serial, 32 / 12 chunks", "particles: number of particles")
def sums_comparable(timings):
    """and again, we have much more comparable results."""
    return _compare_snapshots(timings)["reduce"]


@claims.compares("after cell 34", "<0.5", "factor", "particles: futures against futures-pure")
def x10_futures(timings):
    """The dask futures are surprisingly significantly faster."""
    return _compare_methods(timings, [FUTURES_LOAD], [LOAD], X10)


@claims.compares("introduction", tested_by="particles: yt-delayed against yt-serial")
def readers_a_bit_slower():
    """I've consistently seen that the daskified readers are a bit slower than yt's original particle reader."""


@claims.explains(
    "introduction",
    tested_by="particles: bytes moved per task at the same graph (load against reduce), threads against processes",
)
def overhead_communicating():
    """This isn't suprising because using a tool like dask introduces an overhead for communicating data."""


@claims.explains("introduction", tested_by="particles: yt-delayed against delayed, bytes per task")
def reader_serializes_yt():
    """The full daskified reader, however, includes not just communication of data  but also serialization of complex
    yt dataset and index objects."""


@claims.quantifies("cell 7", "8", "count")
def total_threads():
    """Dashboard: http://127.0.0.1:8787/status,Workers: 4 Total threads: 8,Total memory: 31.20 GiB"""
    return 4 * 2


@claims.quantifies("cell 7", "31.20", "GiB")
def total_memory():
    """Total threads: 8,Total memory: 31.20 GiB"""
    return 4 * 7.80


@claims.quantifies("cell 5", "262144", "count")
def chunk_size():
    """'start_index': 0, 'end_index': 262144}"""
    return 64**3


@claims.compares("before cell 11", tested_by="particles: serial against yt-serial")
def same_as_yt():
    """loops over chunks, appends data to a list and then concatenated (pretty much what yt currently does)"""


@claims.quantifies("after cell 14", "4.23..6.91", "factor", "particles")
def slower_factor_a(timings):
    """So from this, we can see that the dask-version are a fair bit slower -- from a factor of 4.23 to 6.91 slower,
    depending on the method."""
    return _compare_methods(timings, DASK_LOADS, [LOAD], A)


@claims.compares("after cell 14", ">1", "factor", "particles")
def fair_bit_slower_a(timings):
    """the dask-version are a fair bit slower"""
    return _compare_methods(timings, DASK_LOADS, [LOAD], A)


@claims.explains(
    "after cell 14", tested_by="particles: load against reduce with the same graph, threads against processes"
)
def consistent_communication():
    """indicating that it's primarily the communication of the np arrays corresponding to each chunk."""


@claims.compares("after cell 14", tested_by="particles: yt-delayed against delayed and yt-serial")
def consistent_with_full_reader():
    """This is consistent with the full daskified particle reader for yt"""


@claims.explains("after cell 14", tested_by="particles")
def use_dependent():
    """It also indicates that the daskified particle reader should be a use-dependent feature."""


@claims.compares("after cell 14", ">1", "factor", "particles")
def simple_read_yt_faster(timings):
    """When simply reading selections into memory, it is probably going to be faster to use yt's existing reader rather
    than the daskified one."""
    return _compare_methods(timings, DASK_LOADS, [LOAD])


@claims.explains(
    "reductions on the array (A)", tested_by="particles: bytes received by the client, load against reduce"
)
def reduction_communication_lower():
    """Depending on the calculation, the communication requirement between dask processes should be a good deal lower
    since the whole data range need not be transferred, only the reduced result."""


@claims.explains("reductions on the array (A)", tested_by="particles: operation sum by number of workers")
def sum_easily_parallelized():
    """This is easily parallelized -- add the values of each chunk then sum the intermediate sums to get the
    cross-chunk sum."""


@claims.quantifies("before cell 15", "1", "arrays", "particles: peak memory")
def serial_whole_array():
    """reads the whole arrays into memory, then sums (**requires whole array in memory**)"""


@claims.quantifies("before cell 16", "1", "chunks", "particles: peak memory")
def manual_one_chunk():
    """requires one chunk in memory at a time"""


@claims.compares("after cell 18", ">1", "factor", "particles")
def serial_sum_faster_a(timings):
    """So even in this case, the plain serial sum is faster."""
    return _compare_methods(timings, DASK_SUMS, [SUM], A)


@claims.compares("after cell 18", "<1", "factor", "the claim dask-futures")
def futures_sum_faster_a(timings):
    """It's interesting that using dask's `client.submit()` functionality to construct a list of futures containing the
    sums by chunk is faster than constructing a full dask array"""
    return _compare_methods(timings, [FUTURES_SUM], [ARRAY_SUM], A)


@claims.explains("after cell 18", tested_by="particles: delayed against array, time of an iteration that reads nothing")
def futures_faster_graph_cause():
    """this is likely due to the overhead of constructing the full dask graph associated with a dask array."""


@claims.quantifies("A larger dataset", "~2", "million")
def particles_a():
    """The case above contains just under ~2 million `("PartType0", "Density")` particles"""
    return 1.941226


@claims.quantifies(
    "A larger dataset; cell 5 lists two of the 12 chunks in one file", "12", "files (cell 5: at most 11)"
)
def files_a():
    """across 12 hdf files"""
    return 12 - 1


@claims.compares("before cell 20", "<1", "factor of Dask / serial, 32 / 12 chunks", "particles: number of particles")
def larger_may_improve(timings):
    """it's possible that the relative performance for the daskified cases will improve with larger datasets"""
    return _compare_snapshots(timings)


@claims.compares("after cell 24", "<1", "factor of Dask / serial, 32 / 12 chunks", "particles: number of particles")
def much_more_comparable_b(timings):
    """so we see that with the larger number of particles and chunk-files, the performance is **much** more comparable
    when loading the full array."""
    return _compare_snapshots(timings)["load"]


@claims.compares("after cell 24", ">1", "factor", "particles")
def still_slower_b(timings):
    """Dask is still a little slower"""
    return _compare_methods(timings, DASK_LOADS, [LOAD], B)


@claims.quantifies("after cell 24", "1.1..1.3", "factor", "particles")
def slower_factor_b(timings):
    """now within a factor of 1.1-1.3"""
    return _compare_methods(timings, DASK_LOADS, [LOAD], B)


@claims.explains("before cell 29", tested_by="particles: rereads against distinct files")
def easy_to_simulate():
    """Since we've detached ourselves from the yt api, it's easy to simulate **much** larger datasets by re-reading
    `datafiles`."""


@claims.quantifies("cell 29", "10", "factor")
def multiplier_10():
    """file_multiplier = 10"""
    return 320 / 32


@claims.quantifies("cell 29", "320", "count")
def chunks_x10():
    """more_files = datafiles * file_multiplier len(more_files) 320"""
    return 32 * 10


@claims.quantifies("cell 30", "63.81559", "million")
def size_x10():
    """63.81559"""
    return PARTICLES_B * 10


@claims.quantifies("before cell 31", "~64", "million")
def particles_x10():
    """~64 million particles"""
    return PARTICLES_B * 10


@claims.quantifies("before cell 31", "<31.20", "GiB as float64", "particles: peak memory")
def x10_fits_memory():
    """~64 million particles should be fine in memory"""
    return PARTICLES_B * 10 * 1e6 * 8 / 2**30


@claims.compares("after cell 34", "<1", "factor", "particles: futures of distinct chunks")
def x10_improvements(timings):
    """Now we're starting to see some improvements from the dask reads! At least in the cases where we don't build a
    full dask array."""
    return _compare_methods(timings, [DELAYED_LOAD, FUTURES_LOAD], [LOAD], X10)


@claims.compares("after cell 38", "<1", "factor", "particles: futures of distinct chunks")
def x10_sums_dask_faster(timings):
    """similar to loading the full array, we see dask is a bit faster"""
    return _compare_methods(timings, DASK_SUMS, [SUM, CHUNKED_SUM], X10)


@claims.compares("after cell 38", "<1", "factor", "particles: futures of distinct chunks")
def x10_sums_futures_best(timings):
    """with the best performance from dask's futures"""
    return _compare_methods(timings, [FUTURES_SUM], [SUM, CHUNKED_SUM, ARRAY_SUM], X10)


@claims.quantifies("cell 39", "2000", "factor")
def multiplier_2000():
    """file_multiplier = 2000"""
    return 64000 / 32


@claims.quantifies("cell 39", "64000", "count")
def chunks_x2000():
    """more_files = datafiles * file_multiplier len(more_files) 64000"""
    return 32 * 2000


@claims.quantifies("cell 40", "12.763118", "billion")
def size_x2000():
    """12.763118"""
    return PARTICLES_B * 2000 / 1e3


@claims.quantifies("before cell 41", "12.7", "billion")
def elements_x2000():
    """12.7 billion elements"""
    return PARTICLES_B * 2000 / 1e3


@claims.quantifies("before cell 41", ">31.20", "GiB as float64", "particles: peak memory")
def x2000_not_in_memory():
    """12.7 billion elements can't load on my machine"""
    return PARTICLES_B * 2000 * 1e6 * 8 / 2**30


@claims.quantifies("before cell 41", "1", "count", "particles")
def single_iteration(timings):
    """It also takes a fair bit of time, so we'll just run a single iteration.."""
    return timings[timings["stage"] == X2000]["runs"]


@claims.quantifies("cell 41", "144", "s", "particles")
def time_x2000_manual(timings):
    """CPU times: user 2min 22s, sys: 6.71 s, total: 2min 29s Wall time: 2min 24s"""
    return _get_times(timings, CHUNKED_SUM, X2000)


@claims.quantifies("cell 42", "180", "s", "particles")
def time_x2000_array(timings):
    """CPU times: user 2min 47s, sys: 2.7 s, total: 2min 49s Wall time: 3min"""
    return _get_times(timings, ARRAY_SUM, X2000)


@claims.quantifies("cell 43", "88", "s", "particles")
def time_x2000_futures(timings):
    """CPU times: user 1min 7s, sys: 6.19 s, total: 1min 13s Wall time: 1min 28s"""
    return _get_times(timings, FUTURES_SUM, X2000)


@claims.compares(
    "after cell 43",
    "<1",
    "factor of futures / manual_sum_by_chunk, x2000 / x10",
    "particles: futures of distinct chunks",
)
def x2000_more_speedup(timings):
    """And we see even more speedup from dask in the futures case."""
    factors = _compare_methods(timings, [FUTURES_SUM], [CHUNKED_SUM])
    return factors[X2000] / factors[X10]


@claims.compares("after cell 43", ">1", "factor", "particles")
def x2000_array_slower(timings):
    """The delayed array is actually slower"""
    return _compare_methods(timings, [ARRAY_SUM], [CHUNKED_SUM], X2000)


@claims.quantifies("after cell 43", tested_by="particles: repeats")
def x2000_large_variance():
    """based on having run that cell a few times, it's got a lot variance in time"""


@claims.quantifies("after cell 43", "120", "s", "particles: repeats")
def x2000_variance():
    """I saw as fast as 2 mins."""


@claims.compares("after cell 43", "<1", "factor", "particles: futures of distinct chunks")
def x2000_worth_it(timings):
    """So definitely worth it for huge amounts of data..."""
    return _compare_methods(timings, DASK_SUMS, [CHUNKED_SUM], X2000)


@claims.compares("caveats", tested_by="particles: factor workers x threads")
def other_configurations():
    """it's possible other configurations could improve dask performance."""


@claims.compares("caveats", tested_by="particles: operation (sum, moments, histogram)")
def complex_reductions():
    """More complex reduction operations could also enhance the relative performance of dask."""


@claims.explains("Summary", tested_by="particles: yt-delayed against delayed")
def serializing_little():
    """Serializing the yt objections (datasets, indexes) does not add much overhead -- here we've extracted chunk info
    from the yt objects and still see similar read times to the full daskified readers."""


@claims.compares("Summary", tested_by="particles: yt-delayed against delayed")
def similar_read_times():
    """still see similar read times to the full daskified readers"""


@claims.explains(
    "Summary",
    tested_by="particles: time of an iteration that reads nothing (internals), load against reduce (communication),"
    " time of the reads",
)
def overhead_comes_from():
    """So the overhead comes from chunked-data communication and dask internals."""


@claims.compares("Summary", "<=1", "factor", "particles")
def larger_on_par_or_faster(timings):
    """For larger amounts of data, the dask reads and reductions are either on par or faster than the single process
    serial chunking."""
    return _compare_methods(timings, [*DASK_LOADS, *DASK_SUMS], SERIAL, X10, X2000)


@claims.compares("Summary", "<1", "factor", "particles: pure=False")
def submit_faster_than_array(timings):
    """Using dask's `client.submit()` functionality tends to be faster than building full dask arrays."""
    return _compare_methods(timings, FUTURES, ARRAYS)


@claims.compares("Summary")
def client_handling_complex():
    """this, however, necessitates some explicit client handling that would be a bit more complex to code."""


@claims.compares("Summary", ">1", "factor", "particles")
def array_overhead_not_worth(timings):
    """the extra overhead is probably not worth it in yt's internal read methods."""
    return _compare_methods(timings, ARRAYS, [LOAD, SUM]).droplevel("method")


@claims.compares("Summary", ">1", "different fastest methods", "particles: number of particles, operation, workers")
def situation_dependent(timings):
    """**So the main takeaway** is that the load or reduction method should be situation dependent."""
    fastest = timings.loc[timings.groupby(["stage", "kind"])["mean_s"].idxmin()]
    return fastest.groupby("kind")["method"].nunique()


@claims.explains("Summary")
def arrays_useful():
    """Using full dask arrays will mostly be useful as a user-feature and for interoperability with other packages"""


@claims.compares("Summary", ">=1", "factor", "particles")
def existing_sufficient(timings):
    """For many users, if simply loading a yt selection, it's likely that using yt's existing chunk-iteration methods
    is totally sufficient."""
    return _compare_methods(timings, DASK_LOADS, [LOAD])


@claims.compares("Summary", "<=1", "factor", "particles")
def larger_more_chunks_better(timings):
    """But for larger datasets with more chunks, using a daskified reader is comparable or better than yt's existing
    reader."""
    return _compare_methods(timings, DASK_LOADS, [LOAD], X10)


@claims.explains("Summary")
def keyword_arguments():
    """This suggests that having some combination of keyword arguments and configuration options is the way to go"""


@claims.explains("before cell 18")
def results_as_they_come():
    """uses client.submit to get the sum of each chunk as a future then adds those results as the come back"""


@claims.compares("Summary", "<1", "factor", "particles: futures of distinct chunks")
def futures_worth_it(timings):
    """So in internal-only yt methods, it may be worth simply using dask's futures implementation"""
    return _compare_methods(timings, FUTURES, SERIAL)


@claims.explains("Summary")
def ease_for_users():
    """But the ease with which a user could write their own parallel calculations without knowing yt's internal
    chunking mechanics is potentially very useful."""


# Functions that recompute published labels (results/published/particles/audit/labels.csv)


def get_largest_factor_a(timings):
    return _compare_methods(timings, DASK_LOADS, [LOAD], A).max()


def get_largest_factor_b(timings):
    return _compare_methods(timings, DASK_LOADS, [LOAD], B).max()
