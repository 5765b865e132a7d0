"""Looking at HDF5 files: what is counted, and what is concluded only where its numbers are large enough."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from sbench.drivers.requests import Watched
from sbench.files import look
from sbench.files.conclusions import list_conclusions
from sbench.files.contents import Contents
from sbench.files.looked import Looked
from sbench.probe import hdf5_tree, sizes
from sbench.probe.program import Problem
from sbench.stores.as_file import AsFile
from sbench.stores.posix.reader import Reader
from sbench.stores.reading import Access
from sbench.studies.shots import files
from sbench.studies.shots.inputs import find_sources

MIB = 2**20


def written(path: Path, write: Callable[[h5py.File], object], **options: object) -> Path:
    with h5py.File(path, "w", **options) as file:
        write(file)
    return path


def looked_at(*paths: Path) -> Looked:
    return look.read_file_set(find_sources([str(path) for path in paths]))


def contents_of(path: Path) -> Contents:
    return looked_at(path).contents[0]


def conclusions(*paths: Path) -> str:
    return "\n".join(list_conclusions(looked_at(*paths)))


def lines(*paths: Path) -> str:
    return "\n".join(looked_at(*paths).format_lines())


def repacked(path: Path, sentences: str) -> Path:
    """Return a copy by the command that conclusions name."""
    if not shutil.which("h5repack"):
        pytest.skip("there is no h5repack: apt install hdf5-tools")
    copy = path.with_name("copy.h5")
    (options,) = re.findall(r"h5repack (.*?) ?original\.h5 copy\.h5", sentences)
    subprocess.run(["h5repack", *options.split(), path, copy], check=True, timeout=60)
    return copy


def series(file: h5py.File) -> None:
    """Write many groups with a dataset each, in more than ROS3 keeps."""
    for number in range(150):
        file[f"series-{number:03}/data"] = np.zeros(16_000)


# Metadata.


def beyond(path: Path, page_buffer: int = 0) -> int:
    """Return the reads behind the first 16 MiB that HDF5 makes to open a file and find what is in it."""
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    access.set_page_buffer_size(page_buffer, 0, 0)
    with open(path, "rb") as raw:
        access.set_fileobj_driver(h5py.h5fd.fileobj_driver, watched := Watched(raw))
        with h5py.File(h5py.h5f.open(b"watched", h5py.h5f.ACC_RDONLY, access)) as file:
            list(hdf5_tree.walk_links(file))
    return sum(offset + length > 16 * MIB for offset, length in watched.reads)


def test_metadata_among_the_values_are_requests_that_pages_save(tmp_path):
    path = written(tmp_path / "series.h5", series)
    said = conclusions(path)
    assert f"its 301 objects takes {beyond(path)} requests of ROS3 beyond the first 16 MiB" in said
    copy = repacked(path, said)
    assert contents_of(copy).requests == beyond(copy) == 0
    assert "Metadata" not in conclusions(copy)


def test_a_few_requests_behind_the_first_16_mib_are_of_no_note(tmp_path):
    def write(file: h5py.File) -> None:
        for number in range(12):
            file[f"{number}"] = np.zeros(MIB // 4)

    path = written(tmp_path / "few.h5", write)
    assert 0 < beyond(path) == contents_of(path).requests < 10
    assert "Metadata" not in conclusions(path)


def test_small_pages_are_as_many_requests_as_a_page_buffer_makes(tmp_path):
    def write(file: h5py.File) -> None:
        for number in range(700):
            file[f"series-{number:03}/data"] = np.zeros(4_000)

    path = written(tmp_path / "small.h5", write, fs_strategy="page")
    said = conclusions(path)
    assert (
        "Pages of 4 KiB are small: even with a page buffer, opening the file and finding its 1,401 objects takes"
        in said
    )
    assert f"takes {beyond(path, 64 * MIB)} requests" in said
    assert "are small" not in conclusions(repacked(path, said))
    few = written(tmp_path / "few.h5", lambda file: file.create_dataset("a", data=np.zeros(10)), fs_strategy="page")
    assert "are small" not in conclusions(few)


@pytest.mark.parametrize("version, members, of_note", [("earliest", 10_000, True), ("earliest", 500, False)])
def test_an_index_of_the_old_format_is_read_as_a_whole(tmp_path, version, members, of_note):
    def write(file: h5py.File) -> None:
        file["data"] = np.zeros(10)
        for number in range(members - 1):
            file[f"another-name-of-it-{number:06}"] = file["data"]

    said = conclusions(path := written(tmp_path / "wide.h5", write, libver=version))
    assert (f"Group / has {members:,} members" in said) == of_note
    if of_note:
        (cost,) = re.findall(r"finding a member by name takes (\d+) reads and", said)
        copy = repacked(path, said)
        assert int(cost) > 3
        before, after = (sum(size for _, size in contents_of(each).largest.reads) for each in (path, copy))
        assert before > 10_000 * len("another-name-of-it-000000") > 4 * after
        assert "members" not in conclusions(copy)


# Space.


def half_deleted(file: h5py.File) -> None:
    for number in range(8):
        file.create_dataset(f"keep-{number}", data=np.arange(65_536.0), chunks=(8_192,))
        file[f"gone-{number}"] = np.zeros(65_536)
    for number in range(8):
        del file[f"gone-{number}"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fs_strategy": "page", "fs_page_size": 65_536},
        {"fs_strategy": "page", "fs_page_size": 2 * MIB},
        {"fs_strategy": "fsm", "fs_persist": True},
    ],
)
def test_space_that_a_copy_drops_is_named_with_the_copys_size(tmp_path, options):
    path = written(tmp_path / "half.h5", half_deleted, **options)
    contents, said = contents_of(path), conclusions(path)
    assert contents.raw == 8 * 8 * 65_536
    assert contents.unused + contents.raw + contents.metadata == path.stat().st_size
    assert (
        f"{sizes.format_size(contents.unused)} of {sizes.format_size(path.stat().st_size)} is free or unaccounted for"
        in said
    )
    copy = repacked(path, said)
    (size,) = re.findall(r"a copy takes about (\S+ \S+):", said)
    assert sizes.parse_size("1MiB") * float(size.removesuffix(" MiB")) == pytest.approx(copy.stat().st_size, rel=0.05)
    assert "unaccounted" not in conclusions(copy)


def test_texts_of_variable_length_are_no_free_space(tmp_path):
    def write(file: h5py.File) -> None:
        file.create_dataset(
            "texts", data=["x" * 1_000 + str(number) for number in range(3_000)], dtype=h5py.string_dtype()
        )

    path = written(tmp_path / "texts.h5", write)
    assert contents_of(path).heap > 3_000 * 1_000
    assert "unaccounted" not in conclusions(path)
    assert re.search(r"space: .* values, .* metadata, .* global heap", lines(path))


# Datasets and chunks.


def test_amounts_are_some_that_occur(tmp_path):
    def write(file: h5py.File) -> None:
        file.create_dataset("time", data=np.zeros(30), chunks=(1,))
        file.create_dataset("values", data=np.zeros((10, 25)), chunks=(1, 25))

    path, empty = written(tmp_path / "a.h5", write), written(tmp_path / "b.h5", lambda file: None)
    said = lines(path, empty)
    assert "\n0 to 2 datasets per file; 2 of 2 take less than 64 KiB" in said
    assert "\n2 datasets in chunks of 8 B to 200 B; 10 to 30 of them per dataset" in said


def test_datasets_are_weighed_by_their_bytes(tmp_path):
    def write(file: h5py.File) -> None:
        for number in range(400):
            file[f"coordinate-{number}"] = np.zeros(6_000)

    small = written(tmp_path / "small.h5", write)
    assert "400 datasets of less than 64 KiB hold 100 % of the bytes" in conclusions(small)
    with h5py.File(small, "a") as file:
        file["variable"] = np.zeros(400 * 6_000 * 3)
    assert "of less than 64 KiB hold" not in conclusions(small)
    assert "401 datasets; 400 of 401 take less than 64 KiB in the file, together 25 % of the bytes" in lines(small)


@pytest.mark.parametrize("number, of_note", [(1_500, True), (900, False)])
def test_small_chunks_are_of_note_where_they_are_many(tmp_path, number, of_note):
    write = lambda file: file.create_dataset("time", data=np.zeros(number), chunks=(1,))  # noqa: E731
    said = conclusions(written(tmp_path / "time.h5", write))
    assert (
        "1,500 chunks take less than 64 KiB each and hold 100 % of the bytes, 1,500 of them in /time" in said
    ) == of_note


def test_chunks_that_no_cache_keeps_are_as_many_reads_as_hdf5_makes(tmp_path):
    def write(file: h5py.File) -> None:
        file.create_dataset("large", data=np.zeros((2_000, 1_200)), chunks=(2_000, 600))
        file.create_dataset("between", data=np.zeros((2_000, 200)), chunks=(2_000, 100))
        noise = np.random.default_rng(1).random((2_000, 1_200))
        file.create_dataset("packed", data=noise, chunks=(2_000, 600), compression="gzip", compression_opts=1)
        file.create_dataset("empty", data=np.zeros((2_000, 1_200)), chunks=(2_000, 600), compression="gzip")
        # In pieces as large as the chunks.
        file.create_dataset("rows", data=np.zeros((400, 4_000)), chunks=(100, 4_000))

    path = written(tmp_path / "chunks.h5", write)
    said = conclusions(path)
    default = sizes.format_size(h5py.h5p.create(h5py.h5p.FILE_ACCESS).get_cache()[2])
    assert f"Chunks of 9.155 MiB (/large) are larger than the {default} of HDF5" in said
    assert re.search(
        r"\(/packed\) are larger than .*: each access to a chunk fetches 8\.\d+ MiB and decompresses them again", said
    )
    assert "/rows" not in said
    assert "/empty" not in said
    for name, cache in (("large", 8 * MIB), ("between", MIB)):
        (cost, instead) = re.findall(rf"reading /{name} takes (\S+) reads instead of (\S+)\.", said)[0]
        (larger,) = re.findall(rf"\(/{name}\).*?rdcc_nbytes=(\d+)", said)
        # One of them finds the chunks.
        assert reads_of(path, name, cache) - 1 == int(cost.replace(",", "")) == 4_000
        assert reads_of(path, name, int(larger)) - 1 == int(instead) == 2


def reads_of(path: Path, name: str, chunk_cache: int) -> int:
    """Return the number of reads that all values of a dataset take."""
    with open(path, "rb") as raw, h5py.File(watched := Watched(raw), "r", rdcc_nbytes=chunk_cache) as file:
        dataset = file[name]
        watched.reads.clear()
        dataset[()]
        return len(watched.reads)


# What cannot be read.


def test_a_damaged_dataset_is_named_and_the_others_are_counted(tmp_path):
    def write(file: h5py.File) -> None:
        file.create_dataset("damaged", data=np.zeros(10), chunks=(2,))
        file.create_dataset("whole", data=np.zeros(10))

    path = written(tmp_path / "damaged.h5", write)
    content = path.read_bytes()
    # The node of chunks, not of groups, whose type is 0.
    path.write_bytes(content.replace(b"TREE\x01", b"EERT\x01"))
    assert path.read_bytes() != content
    said = lines(path)
    assert "not readable here: /damaged (cannot be opened" in said
    assert [dataset.path for dataset in contents_of(path).datasets] == ["/whole"]


def test_virtual_datasets_are_found_by_the_files_name(tmp_path):
    source = written(tmp_path / "source.h5", lambda file: file.create_dataset("values", data=np.zeros(3)))
    layout = h5py.VirtualLayout((3,), "f8")
    layout[:] = h5py.VirtualSource("source.h5", "values", (3,))
    path = written(tmp_path / "virtual.h5", lambda file: file.create_virtual_dataset("virtual", layout))
    said = lines(path)
    assert "1 dataset\n1 dataset with values in other files" in said
    assert "not readable" not in said
    assert "except the values of 1 dataset in other files" in conclusions(path)
    source.unlink()
    assert "not readable here: /virtual (virtual; its source source.h5 does not exist)" in lines(path)


def test_what_hdf5_may_lack_is_asked_of_the_library(tmp_path):
    assert h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP)
    write = lambda file: file.create_dataset("a", data=np.zeros((64, 64)), chunks=(64, 64), compression="szip")  # noqa: E731
    path = written(tmp_path / "szip.h5", write)
    assert "filters: szip (1)" in lines(path)
    assert "cannot be read" not in conclusions(path)
    assert files.describe_lacking(4, "szip") == "szip, which this HDF5 lacks"
    assert files.describe_lacking(32001, "blosc") == "blosc, which is available only as a plugin of HDF5"


def test_datasets_of_a_type_that_was_read_before_are_looked_at_as_well(tmp_path):
    def write(file: h5py.File) -> None:
        for name in ("a", "b"):
            file[name] = np.zeros(3)
            file.create_dataset(f"{name}-chunked", data=np.zeros(3), chunks=(3,))
            file.create_dataset(f"{name}-outside", (3,), "f8", external=[(f"{name}.bin", 0, 24)])
            h5py.h5d.create(
                file.id, f"{name}-é".encode("latin-1"), h5py.h5t.NATIVE_DOUBLE, h5py.h5s.create_simple((3,))
            )

    contents = contents_of(written(tmp_path / "mixed.h5", write))
    assert (len(contents.datasets), contents.elsewhere) == (6, 2)
    left_out = ["/a-outside", "/a-\\xe9", "/b-outside", "/b-\\xe9"]
    assert [entry.path for entry in contents.left_out] == left_out


def test_a_filter_that_is_lacking_is_named_once_for_all_datasets(tmp_path):
    def write(file: h5py.File) -> None:
        created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        created.set_chunk((4,))
        created.set_filter(32001, h5py.h5z.FLAG_OPTIONAL, (1, 2))
        for name in (b"a", b"b"):
            space = h5py.h5s.create_simple((4,))
            dataset = h5py.h5d.create(file.id, name, h5py.h5t.NATIVE_INT32, space, created)
            dataset.write_direct_chunk((0,), b"not four numbers", 0)

    said = conclusions(written(tmp_path / "blosc.h5", write))
    assert "/a and 1 more cannot be read without blosc, which is available only as a plugin of HDF5." in said


def test_datasets_that_are_left_out_are_not_kept_open(tmp_path):
    def write(file: h5py.File) -> None:
        for number in range(20):
            file.create_dataset(f"{number}", (2,), h5py.ref_dtype)

    left_out = contents_of(written(tmp_path / "references.h5", write)).left_out
    assert len(left_out) == 20
    assert not any(entry.dataset for entry in left_out)


def test_progress_is_printed_where_it_takes_long(tmp_path, monkeypatch, capsys):
    path = written(tmp_path / "a.h5", lambda file: file.create_dataset("a", data=np.zeros(3)))
    looked_at(path)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(look, "_PROGRESS_S", -1)
    looked_at(path)
    assert f"file 1 of 1: {path}, 2 objects\n" in capsys.readouterr().err


def test_datasets_in_chunks_that_were_never_written_are_counted(tmp_path):
    path = written(tmp_path / "a.h5", lambda file: file.create_dataset("x", (100,), "f8", chunks=(10,)))
    assert "1 dataset in chunks of 80 B; 0 of them per dataset" in lines(path)


def test_texts_of_a_small_file_are_no_free_space(tmp_path):
    texts = ["x" * 100] * 100
    path = written(tmp_path / "a.h5", lambda file: file.create_dataset("x", data=texts, dtype=h5py.string_dtype()))
    assert "KiB global heap" in lines(path)


# Accesses.


@pytest.fixture
def columns(tmp_path: Path) -> Path:
    """Return a file with a table of columns in chunks of rows."""
    values = np.random.default_rng(1).random((500_000, 6), dtype="f4")
    return written(tmp_path / "a.h5", lambda file: file.create_dataset("table", data=values, chunks=(65_536, 6)))


@pytest.mark.parametrize(
    "access, words",
    [
        ("[:, 0]", "[:, 0] fetches 12 MiB for 1.907 MiB: the chunks (65536, 6) of /table do not suit it; with chunks"),
        ("all", "The chunks of {path} suit all."),
        ("", "Run sbench advise to measure"),
    ],
)
def test_an_access_is_compared_with_the_chunks(capsys, columns, access, words):
    look.print_contents([str(columns)], access, [])
    printed = capsys.readouterr().out
    assert words.format(path=columns) in printed
    assert ("suit" in printed) == bool(access)


def test_an_access_to_datasets_that_are_not_there_is_one_line(columns):
    with pytest.raises(Problem, match="/none"):
        look.print_contents([str(columns)], "all", ["/none"])


def test_of_many_files_twenty_are_looked_into(tmp_path):
    for number in range(25):
        written(tmp_path / f"{number}.h5", lambda file: file.create_dataset("a", data=1))
    looked = look.read_file_set(find_sources(str(tmp_path)))
    assert len(looked.bytes) == 25
    assert 10 < len(looked.contents) <= 20


@pytest.mark.parametrize("page, level", [(MIB, "64MiB"), (20_000_000, "78125KiB")])
def test_a_page_buffer_that_is_named_is_a_level_of_its_factor(tmp_path, page, level):
    path = written(
        tmp_path / "a.h5", lambda file: file.create_dataset("a", data=1), fs_strategy="page", fs_page_size=page
    )
    assert f'measure "0" and {level}.' in conclusions(path)
    assert sizes.parse_size(level) >= 4 * page


def test_values_that_lie_in_several_blocks_of_an_object_are_read_whole(tmp_path):
    values = np.arange(MIB, dtype="f8")
    written(tmp_path / "large.h5", lambda file: file.create_dataset("x", data=values))
    reader = Reader({}, {"folder": tmp_path}, Access(MIB, 1))
    with h5py.File(AsFile(reader, "large.h5"), "r") as file:
        assert np.array_equal(file["x"], values)
