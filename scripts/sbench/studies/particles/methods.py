"""Methods to load and reduce chunks of particles (the levels of the factor `method`), and the operations."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sbench.studies.particles import through_yt
from sbench.studies.particles.snapshot_reading import Chunk, Source, read_chunk, record_reads

if TYPE_CHECKING:
    import numpy as np
    from distributed import Client

# Names of the functions in the published study, by (operation, method).
PUBLISHED = {
    ("load", "serial"): "serial_read_concat",
    ("load", "delayed"): "delay_then_concat",
    ("load", "futures-pure"): "in_mem_from_dask_futures",
    ("load", "array"): "read_delayed_array",
    ("sum", "serial"): "serial_read_concat.sum",
    ("sum", "chunkwise"): "manual_sum_by_chunk",
    ("sum", "array"): "read_delayed_array.sum",
    ("sum", "futures-pure"): "sum_of_futures",
}


@dataclass(frozen=True)
class Task:
    """The work to be done by a method.

    Attributes:
        source: settings for reading.
        chunks: all chunks in order, including repetitions.
        operation: key of `OPERATIONS`.
        edges: bin edges of the histogram.
        client: client of the Dask cluster.
    """

    source: Source
    chunks: Sequence[Chunk]
    operation: str
    edges: Sequence[float]
    client: "Client | None" = None

    @property
    def particles(self) -> int:
        """Return the number of particles in all chunks."""
        return sum(chunk.end - chunk.start for chunk in self.chunks)

    def merge_parts(self, parts: Sequence[Any]) -> Any:
        """Combine the operation's results for all chunks."""
        return OPERATIONS[self.operation].together(parts)


@dataclass(frozen=True)
class Operation:
    """An operation on particle values.

    Attributes:
        of_chunk: applies the operation to the values of a chunk; the second argument is the bin edges.
        together: combines the results of `of_chunk`, in the order of the chunks.
        of_array: applies the operation to a Dask array of all values; the second argument is the bin edges.
    """

    of_chunk: Callable[["np.ndarray", Sequence[float]], Any]
    together: Callable[[Sequence[Any]], Any]
    of_array: Callable[[Any, Sequence[float]], Any]


def _join_values(parts: Sequence["np.ndarray"]) -> "np.ndarray":
    import numpy as np

    return np.concatenate(parts)


def _compute_moments(values: "np.ndarray", _edges: Sequence[float]) -> tuple[int, float, float]:
    if not len(values):
        return 0, 0.0, 0.0
    mean = float(values.mean())
    return len(values), mean, float(((values - mean) ** 2).sum())


def _merge_moments(parts: Sequence[tuple[int, float, float]]) -> tuple[float, float]:
    """Merge the moments (count, mean, sum of squared deviations) of several sets (Chan, Golub and LeVeque, 1979).

    Returns:
        Mean and variance of the union; the variance is NaN if it is empty.
    """
    count, mean, squares = 0, 0.0, 0.0
    for more, other, others in parts:
        if more:
            apart, both = other - mean, count + more
            squares += others + apart * apart * count * more / both
            mean, count = mean + apart * more / both, both
    return mean, squares / count if count else math.nan


def _compute_histogram(values: "np.ndarray", edges: Sequence[float]) -> "np.ndarray":
    import numpy as np

    return np.histogram(values, edges)[0]


def _build_array_function(
    function: Callable[[Any, Any, Sequence[float]], Any],
) -> Callable[[Any, Sequence[float]], Any]:
    """Build a function that computes the lazy Dask expression returned by `function(dask.array, array, edges)`."""

    def compute(array: Any, edges: Sequence[float]) -> Any:
        import dask
        import dask.array

        (result,) = dask.compute(function(dask.array, array, edges))
        return result

    return compute


OPERATIONS = {
    "load": Operation(lambda values, _: values, _join_values, _build_array_function(lambda _, array, __: array)),
    "sum": Operation(
        lambda values, _: float(values.sum()), sum, _build_array_function(lambda _, array, __: array.sum())
    ),
    "moments": Operation(
        _compute_moments, _merge_moments, _build_array_function(lambda _, array, __: (array.mean(), array.var()))
    ),
    "histogram": Operation(
        _compute_histogram, sum, _build_array_function(lambda da, array, edges: da.histogram(array, bins=edges)[0])
    ),
}


def reduce_chunk(source: Source, chunk: Chunk, operation: str, edges: Sequence[float]) -> Any:
    """Read a chunk and apply an operation to it. Reductions submit this function as a Dask task."""
    return OPERATIONS[operation].of_chunk(read_chunk(source, chunk), edges)


def _run_serial(task: Task) -> Any:
    values = _join_values([read_chunk(task.source, chunk) for chunk in task.chunks])
    return task.merge_parts([OPERATIONS[task.operation].of_chunk(values, task.edges)])


def _run_preallocated(task: Task) -> "np.ndarray":
    import numpy as np

    values, place = np.empty(task.particles), 0
    for chunk in task.chunks:
        read_now = read_chunk(task.source, chunk)
        values[place : place + len(read_now)] = read_now
        place += len(read_now)
    return values[:place]


def _run_chunkwise(task: Task) -> Any:
    return task.merge_parts([reduce_chunk(task.source, chunk, task.operation, task.edges) for chunk in task.chunks])


def _reduce_yt_chunk(piece: Any, source: Source, operation: str, edges: Sequence[float]) -> Any:
    """Read one of yt's chunk objects, which contains references to yt's dataset and reader, and reduce it."""
    import numpy as np

    if source.empty:
        record_reads([through_yt.get_chunk_number(piece)], 0.0, 0, "")
        values = np.empty(0)
    else:
        values = through_yt.read_piece(piece, source)
    return OPERATIONS[operation].of_chunk(values, edges)


def _build_arguments(task: Task) -> list[tuple]:
    return [(task.source, chunk, task.operation, task.edges) for chunk in task.chunks]


def _build_yt_arguments(task: Task) -> list[tuple]:
    pieces = through_yt.list_pieces(through_yt.get_dataset(task.chunks[0].address))
    return [(pieces[chunk.number], task.source, task.operation, task.edges) for chunk in task.chunks]


def _run_yt_serial(task: Task) -> Any:
    if task.source.empty:
        return _run_serial(task)
    values = through_yt.read_all_data(through_yt.get_dataset(task.chunks[0].address), task.source)
    return task.merge_parts([OPERATIONS[task.operation].of_chunk(values, task.edges)])


def _run_delayed(task: Task, function: Callable = reduce_chunk, arguments: Callable = _build_arguments) -> Any:
    import dask

    lazy = dask.delayed(function, pure=False)
    return task.merge_parts(dask.compute(*(lazy(*each) for each in arguments(task))))


def _run_futures(task: Task, pure: bool = False) -> Any:
    submit = task.client.submit
    futures = [submit(reduce_chunk, *each, pure=pure, retries=0) for each in _build_arguments(task)]
    return task.merge_parts(task.client.gather(futures))


def _run_array(task: Task) -> Any:
    import dask
    import dask.array
    import numpy as np

    lazy = dask.delayed(read_chunk, pure=False)
    # With a region, the number of selected particles is unknown until the chunk is read.
    counted = not task.source.region
    parts = [
        dask.array.from_delayed(
            lazy(task.source, chunk), (chunk.end - chunk.start if counted else np.nan,), dtype="float64"
        )
        for chunk in task.chunks
    ]
    return OPERATIONS[task.operation].of_array(dask.array.concatenate(parts), task.edges)


@dataclass(frozen=True)
class Method:
    """A method to load or reduce chunks.

    Attributes:
        run: implementation.
        described: description for reports.
        loads: whether it supports loading all values.
        reduces: whether it supports reductions.
        dask: whether the cluster's workers read the chunks.
        pure: whether equal tasks run only once, which is Dask's default.
        yt: whether it reads through yt.
        by_name: whether loaded values are in the order of file names instead of file numbers.
        arguments: function that returns the arguments of each task.
        load: line of code in `SCRIPT` that loads all values; empty if impossible in a single line.
        add: line of code in `SCRIPT` that sums all values; empty if impossible in a single line.
    """

    run: Callable[[Task], Any]
    described: str
    loads: bool = True
    reduces: bool = True
    dask: bool = True
    pure: bool = False
    yt: bool = False
    by_name: bool = False
    arguments: Callable[[Task], list[tuple]] = _build_arguments
    load: str = ""
    add: str = ""


# Template of a script for user-supplied files; `lines` are the `load` and `add` lines of methods.
SCRIPT = """\
import glob
import dask, dask.array, dask.distributed, h5py, numpy as np

def read(file, start, end):
    with h5py.File(file) as opened:
        return opened["{group}/{field}"][start:end].astype("float64")

def add(file, start, end):
    return read(file, start, end).sum()

def into_one(chunks):
    values, place = np.empty(sum(end - start for _, start, end in chunks)), 0
    for file, start, end in chunks:
        values[place : place + end - start] = read(file, start, end)
        place += end - start
    return values

def count(file):
    with h5py.File(file) as opened:
        return len(opened["{group}/{field}"])

if __name__ == "__main__":
    client = dask.distributed.Client(n_workers={workers}, threads_per_worker={threads})
    # Adapt the pattern and the order to your files.
    files = sorted(glob.glob("snapshot.*.hdf5"), key=lambda file: int(file.split(".")[-2]))
    chunks = [(f, s, min(s + {chunk}, n)) for f in files for n in [count(f)] for s in range(0, n, {chunk})]
    {lines}"""
METHODS = {
    "serial": Method(
        _run_serial,
        "a loop reads the chunks in turn, then joins them",
        dask=False,
        load="np.concatenate([read(*chunk) for chunk in chunks])",
        add="np.concatenate([read(*chunk) for chunk in chunks]).sum()",
    ),
    "preallocated": Method(
        _run_preallocated,
        "a loop reads the chunks in turn into an array of the final size",
        reduces=False,
        dask=False,
        load="into_one(chunks)",
    ),
    "chunkwise": Method(
        _run_chunkwise,
        "a loop reduces the chunks in turn",
        loads=False,
        dask=False,
        add="sum(add(*chunk) for chunk in chunks)",
    ),
    "delayed": Method(
        _run_delayed,
        "a delayed task per chunk; the client joins the results",
        load="np.concatenate(dask.compute(*[dask.delayed(read, pure=False)(*chunk) for chunk in chunks]))",
        add="sum(dask.compute(*[dask.delayed(add, pure=False)(*chunk) for chunk in chunks]))",
    ),
    "futures": Method(
        _run_futures,
        "a future per chunk, each a separate task; the client joins the results",
        load="np.concatenate(client.gather([client.submit(read, *chunk, pure=False) for chunk in chunks]))",
        add="sum(client.gather([client.submit(add, *chunk, pure=False) for chunk in chunks]))",
    ),
    "futures-pure": Method(
        lambda task: _run_futures(task, pure=True),
        "a future per chunk with Dask's default, which runs equal tasks once",
        pure=True,
    ),
    "array": Method(
        _run_array,
        "a Dask array of delayed chunks; the client computes it",
        load="dask.array.concatenate([dask.array.from_delayed(dask.delayed(read, pure=False)(f, s, e), (e - s,), float)"
        " for f, s, e in chunks]).compute()",
        add="dask.array.concatenate([dask.array.from_delayed(dask.delayed(read, pure=False)(f, s, e), (e - s,), float)"
        " for f, s, e in chunks]).sum().compute()",
    ),
    "yt-serial": Method(
        _run_yt_serial,
        "yt's all_data()[field] in the client",
        dask=False,
        yt=True,
        by_name=True,
        load='yt.load(chunks[0][0]).all_data()["{group}", "{field}"].d',
        add='yt.load(chunks[0][0]).all_data()["{group}", "{field}"].d.sum()',
    ),
    "yt-delayed": Method(
        lambda task: _run_delayed(task, _reduce_yt_chunk, _build_yt_arguments),
        "a delayed task per chunk, which receives yt's pickled chunk and dataset",
        yt=True,
        arguments=_build_yt_arguments,
    ),
}


def format_script(lines: Sequence[str], **levels: object) -> str:
    """Insert lines of code into the script template. `levels` are group, field, chunk, workers and threads."""
    needed = ["import yt"] if any("yt.load" in line for line in lines) else []
    return SCRIPT.format(lines="\n    ".join([*needed, *lines]), **levels)
