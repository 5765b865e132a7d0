"""Check claims of the published study of parallel reads from Azure, and table labels that its data contradict."""

import pandas as pd

from sbench.design.claim import Claims

MIB, GIB = "File Size(MiB)", "File Size(GiB)"
SINGLE, MULTIPLE = "INPUT_Single_File_Multiple_Readers.csv", "INPUT_Multiple_Files_Multiple_Readers.csv"
claims = Claims(
    single=SINGLE, multiple=MULTIPLE, both=f"{MULTIPLE} + {SINGLE}", extended="INPUT_Extended_to_Larger_File_Sizes.csv"
)


def _compute_mib(table: pd.DataFrame, store: str) -> pd.Series:
    """Return how many MiB were read from a store, computed as bandwidth × latency."""
    return table[f"{store} Bandwidth (MiB/s)"] * table[f"{store} Latency (s)"]


def _convert_to_tib(extended: pd.DataFrame, gib: int) -> pd.Series:
    """Return the table's row of this size in GiB, converted to TiB."""
    return extended[extended[GIB] == gib][GIB] / 1024


@claims.quantifies("Conditions", "4.75", "TiB")
def blob_limit():
    """The limitation of a single Azure Blob is 4.75 TiB"""


@claims.quantifies("Conditions", "1", "TiB")
def file_limit():
    """and Azure File is 1 TiB"""


@claims.quantifies("Extended to Larger File Sizes", "2.5", "TiB")
def tib_2560(extended):
    """2560(~2.5 TiB)"""
    return _convert_to_tib(extended, 2560)


@claims.quantifies("Extended to Larger File Sizes", "4.75", "TiB")
def tib_4860(extended):
    """4860(~4.75 TiB)"""
    return _convert_to_tib(extended, 4860)


@claims.quantifies("Benchmark", "1", "files of the printed size, by bandwidth × latency", "blobs: multiple-files")
def divided(multiple):
    """files are evenly divided into corresponding sub-files"""
    return _compute_mib(multiple, "Blob") / multiple[MIB]


@claims.quantifies("Benchmark", "5", "GiB")
def divided_example():
    """E.g. 100 GiB file, 20 processes, we divide it into 20 small files with 5 GiB each."""
    return 100 / 20


@claims.explains("Background")
def hpc_io_hierarchy():
    """For a traditional HPC applications hosted on dedicated supercomputers such as
    [Cirrus](https://www.epcc.ed.ac.uk/facilities/demand-computing/cirrus) or [Archer](http://www.archer.ac.uk/),
    normally we have the I/O hierachy as is shown is the figure."""


@claims.explains("Background")
def hard_to_use_mpiio():
    """it is not easy to utilize the framework enhancements on I/O (e.g MPI's collective I/O)."""


@claims.explains("Background")
def cloud_apis():
    """So, similar to directly use POSIX I/O for inputs & outputs, we use cloud APIs to access the cloud storage."""


@claims.explains("Single Reader & Broadcast", tested_by="blobs: pattern broadcast")
def rank_zero_downloads():
    """Process at rank 0 will download all the data into its memory and then it will distribute sections of data to
    each processes accordingly."""


@claims.explains("Single Reader & Broadcast", tested_by="blobs: broadcast, memory growth of ranks")
def master_memory():
    """Restricted by the available memory for cloud VMs, the master process can only download a specified amount of
    data."""


@claims.compares("Single Reader & Broadcast", "<1", "factor")
def interconnect_slower():
    """Besides, the interconnect within HPC clusters deployed in public clouds is not as fast as in a supercomputer."""


@claims.compares("Single Reader & Broadcast", tested_by="the claim azure-broadcast")
def broadcast_not_suited():
    """So, generally, this strategy is not well suited for a cloud native HPC solution."""


@claims.explains("Singel File, Multiple Readers", tested_by="blobs: extended SFMR: ranges against whole objects")
def range_get():
    """Cloud provide range get APIs which could help in applying this pattern."""


@claims.explains("Multiple Files, Multiple Readers")
def pre_processing():
    """This strategy requires source data to be pre-processed and well matched with the amount of processes we are
    going to use."""


@claims.explains(
    "Multiple Files, Multiple Readers",
    tested_by="blobs: number of processes for MFMR and SFMR; contention for a shared object against separate objects",
)
def well_parallelized():
    """However, since there are no corruptions between files, this strategy is well parallelized."""


@claims.explains("Conditions", tested_by="blobs: size against memory")
def download_memory():
    """The amount of data each process downloads is restricted by the available memory"""


@claims.quantifies("Conditions", "", "bytes", "blobs: chunk_size")
def default_block():
    """Block Blob is used for Blob benchmarking and default block size are used"""


@claims.quantifies("Benchmark", "20", "processes")
def nodes_processes_cirrus():
    """Experiments run on **5 nodes, 4 processes** each."""


@claims.quantifies("Benchmark", "A4_v2", "type")
def vm_type():
    """Azure Standard **A4_v2** VM configurations are used."""


@claims.quantifies("Benchmark", "100", "iterations", "blobs: keep every iteration")
def hundred_iterations():
    """Results got from 100 iterations of benchmarkings."""


@claims.quantifies("Benchmark", "4", "operations")
def sub_operations():
    """if we want to update a 4 GiB file with the limit of 1GiB, the operation will be divided into 4 sub-ops that
    upload 1 GiB each time."""
    return 4 / 1


@claims.explains("Benchmark", tested_by="blobs: limit per operation as a parameter")
def limits_per_operation():
    """For all I/O operations, there are limits on data sizes for each operation."""


@claims.quantifies("Start Up", "<1.5", "GiB")
def less_than_1_5_gib(single):
    """As is restricted by the VM's memory, for each downloads we can only get the inputs less than 1.5 GiB on
    **A4_v2**."""
    return single[MIB] / 1024


@claims.quantifies("Start Up", "20", "reads of the file")
def whole_file_each(single):
    """For start up, we test the case that all the processes downloads the entire file with the size that could be
    directly loaded into memory."""
    return _compute_mib(single, "File") / single[MIB]


@claims.quantifies("Extended to Larger File Sizes", "25", "GiB")
def section_25_gib():
    """(e.g for a 500 GiB file with 20 processes processing on it, each process will work on its 25 GiB sub-section)"""
    return 500 / 20


@claims.explains(
    "Extended to Larger File Sizes",
    ">1.5",
    "GiB, limit of a download (Start Up)",
    "blobs: memory growth of ranks against operation_size",
)
def large_not_at_once(extended):
    """As is limited by the available memory size of host VMs, for a large inputs it is impossible to download the
    entire file at once."""
    return extended[GIB]


@claims.quantifies("Extended to Larger File Sizes", "~1.0", "reads of the file", "blobs: sections")
def sections_divided(extended):
    """So the source file is evenly divided into serval sub-sections and each processes is responsible for one of
    them."""
    return _compute_mib(extended, "Blob") / (1024 * extended[GIB])


@claims.explains("Benchmark", tested_by="blobs: limit per operation")
def split_operations():
    """If the size of data exceeds the limits, the operation will be sepearated into serval sub-ops that make up the
    entire operation."""


@claims.explains("Multiple Files, Multiple Readers")
def source_several_files():
    """Source data has been originally present or pre-processing into serval different files."""


# Functions that compute labels of the published tables (results/published/blobs/audit/labels.csv).


def count_files_of_multiple_from_files(multiple):
    return _compute_mib(multiple, "File") / multiple[MIB]


def count_files_of_both_from_cirrus(both):
    return _compute_mib(both, "Cirrus") / both[MIB]


def compute_single_blob_bandwidth_of_1024_mib(single):
    return 20 * 1024 / single[single[MIB] == 1024]["Blob Latency (s)"]


def compute_multiple_blob_bandwidth_of_2_mib(multiple):
    return 20 * 2 / multiple[multiple[MIB] == 2]["Blob Latency (s)"]


def compute_extended_blob_bandwidth_of_4860_gib(extended):
    return 1024 * 4860 / extended[extended[GIB] == 4860]["Blob Latency (s)"]
