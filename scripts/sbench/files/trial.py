"""Try out file layouts for advice: copy some files to different layouts, and forecast each way to read them."""

import math
import posixpath
import shutil
from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import h5py

from sbench.files import chunking, copies
from sbench.files import forecast as forecasts
from sbench.files.copies import Layout, Made
from sbench.files.forecast import Question
from sbench.files.place import Place
from sbench.probe import sizes
from sbench.probe.program import Problem, write_text
from sbench.stores import store as stores
from sbench.studies.shots import arms as ways
from sbench.studies.shots.accesses import Accesses
from sbench.studies.shots.arms import Arm
from sbench.studies.shots.files import get_creation_facts
from sbench.studies.shots.manifest import list_datasets

ORIGINAL = "original"
# Maximum number of layouts to measure; the forecast time with a copy must be less than this fraction of the best time
# without a copy.
MOST_COPIES, WORTH = 2, 0.9
# Ways to read with a longer forecast (in seconds per object) are not measured.
LONGEST_S = 60.0
# Minimum and maximum size of the chunk caches to try, in bytes.
_SMALLEST_CACHE, _LARGEST_CACHE = 2**26, 2**30
# Examining the chunks of more files takes long, so a message is printed before.
_MANY_FILES = 200


@dataclass
class Trial:
    """A trial of layouts and ways to read ("arms") on some files.

    Attributes:
        files: sample of the user's files, on the same disk as the scratch folder.
        named: paths and shell patterns of the user's files, for commands that the user can run.
        every: all files that match `named`; for a bucket, only `files`.
        accesses, datasets: how to read the files, and patterns of the datasets to read.
        place: storage for which to give advice.
        scratch: folder for copies.
        python: Python interpreter of the environment that will read the files.
        considered: all arms with their forecasts.
        left_out: reasons why layouts were left out.
        made: layout and copies of `files`, by name of the layout.
        groups: groups that contain the datasets of the first file.
        unsuited: descriptions of accesses for which the chunks are unsuitable.
    """

    files: list[Path]
    named: list[str]
    every: list[Path]
    accesses: Accesses
    datasets: list[str]
    place: Place
    scratch: Path
    python: str
    considered: list[Arm] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    made: dict[str, tuple[Layout, Made]] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
    unsuited: list[str] = field(default_factory=list)

    def choose_layouts(self) -> list[Layout]:
        """Forecast reads of the original files and of each layout, and choose the layouts worth measuring.

        Returns:
            The best layout of each kind that is sufficiently faster than the original files, the best first.

        Raises:
            Problem: the original files cannot be read.
        """
        paged, cache = self._read_first_file()
        original = ways.list_arms(ORIGINAL, self._is_from_s3, paged, cache)
        if reason := self._add_forecasts([Question(list(original), self._object, self.datasets)])[0]:
            raise Problem(f"{self._object[0]} cannot be read: {reason}")
        layouts = {layout.name: layout for layout in self._list_layouts()}
        self._try_layouts(layouts.values())
        page = min(self._select_arms(layouts), key=self._compute_rank, default=Arm("paged-1MiB", "")).layout.partition(
            "-"
        )[2]
        fitted = self._list_fitted(page)
        self._try_layouts(fitted)
        layouts |= {layout.name: layout for layout in fitted}
        best: dict[str, Arm] = {}
        for arm in sorted(self._select_arms(layouts), key=self._compute_rank):
            best.setdefault(arm.layout.partition("-")[0], arm)
        bound = WORTH * min(self._compute_rank(arm)[0] for arm in self._select_arms([ORIGINAL]))
        return [layouts[arm.layout] for arm in best.values() if self._compute_rank(arm)[0] < bound]

    def make_copies(self, layouts: Iterable[Layout]) -> None:
        """Copy `files` to each layout in turn, until `MOST_COPIES` layouts succeeded; record why others failed."""
        for layout in layouts:
            if len(self.made) < MOST_COPIES:
                try:
                    made = copies.make_copies(
                        layout, self.files, self.scratch / layout.name, self.datasets, self.accesses
                    )
                    self.made[layout.name] = layout, made
                except Problem as problem:
                    self.left_out.append(f"{layout.name}: {problem}")
                    shutil.rmtree(self.scratch / layout.name, ignore_errors=True)

    def choose_arms(self) -> list[Arm]:
        """Return the arms to measure.

        These are the original files with default settings, the best arm per driver for the original files, and the best
        arm per set of copies. Arms with a forecast above `LONGEST_S` are excluded.
        """
        original = [arm for arm in self._select_arms([ORIGINAL]) if self._compute_rank(arm)[0] <= LONGEST_S]
        chosen_arms = [self._select_arms([ORIGINAL])[0]]
        for driver in dict.fromkeys(arm.driver for arm in original):
            of_driver = [arm for arm in original if arm.driver == driver and arm not in chosen_arms]
            chosen_arms += sorted(of_driver, key=self._compute_rank)[:1]
        for layout in self.made:
            chosen_arms += sorted(self._select_arms([layout]), key=self._compute_rank)[:1]
        return [arm for arm in chosen_arms if self._compute_rank(arm)[0] <= LONGEST_S]

    def build_facts(self, arms: Sequence[Arm]) -> dict:
        """Build the section `advice` of the configuration of a run that measures `arms`."""
        return {
            "accesses": self.accesses.shares,
            "place": self.place.words,
            "arms": list(map(asdict, arms)),
            "considered": list(map(asdict, self.considered)),
            "left_out": self.left_out,
            "unsuited": self.unsuited,
            "copies": {name: self._describe_copy(*of) for name, of in self.made.items()},
        }

    @property
    def sets(self) -> dict[str, list[str]]:
        """The paths of the files to measure, by layout."""
        copied = {name: list(map(str, made.files)) for name, (_, made) in self.made.items()}
        return {ORIGINAL: list(map(str, self.files))} | copied

    @property
    def patterns(self) -> dict[str, list[str]]:
        """The patterns of the datasets to read, by layout."""
        copied = {name: layout.convert_patterns(self.datasets) for name, (layout, _) in self.made.items()}
        return {ORIGINAL: self.datasets} | copied

    @property
    def is_mirrored(self) -> bool:
        """Whether copies need the folder structure of the originals, because some file names repeat."""
        return len({path.name for path in self.every}) < len(self.every)

    @property
    def _is_from_s3(self) -> bool:
        return stores.get_store(self.place.store).speaks_s3

    @property
    def _object(self) -> list[Path]:
        """The files that make up one object: the first file if files are read individually, otherwise all files."""
        return self.files[:1] if self.accesses.unit == "files" else self.files

    def _compute_rank(self, arm: Arm) -> tuple[float, float]:
        return arm.compute_rank(self.accesses)

    def _select_arms(self, layouts: Container[str]) -> list[Arm]:
        return [arm for arm in self.considered if arm.layout in layouts]

    def _read_first_file(self) -> tuple[bool, str]:
        """Examine the first file.

        Returns:
            Whether it has pages, and the size of a chunk cache for its largest chunks, such as "64MiB" (an empty string
            if the default is suitable).
        """
        with h5py.File(self._object[0]) as file:
            meant = list_datasets(file, self.datasets, str(self._object[0]), self.accesses)
            self.unsuited = chunking.find_unsuited(
                chunking.name_kinds(meant), self.accesses, chunking.compute_price(self.place.network)
            )
            largest = max(
                (math.prod(one.chunks) * chunking.get_kind(one).item for one in meant if one.chunks), default=0
            )
            self.groups = sorted({posixpath.dirname(one.name) for one in meant})
            paged = get_creation_facts(file)["paged"]
        if not ways.RDCC_NBYTES < largest <= _LARGEST_CACHE:
            return paged, ""
        return paged, sizes.format_level(max(_SMALLEST_CACHE, 2 ** (largest - 1).bit_length()))

    def _list_layouts(self) -> list[Layout]:
        """List the layouts that do not change the chunks."""
        merged = self.accesses.unit == "datasets" and len(self.files) > 1
        pages = [(page, sizes.format_level(page)) for page in copies.list_page_sizes(self._object[0].stat().st_size)]
        layouts = [Layout(f"paged-{name}", page) for page, name in pages]
        return layouts + [Layout(f"large-{name}", page, merged=True) for page, name in pages if merged]

    def _list_fitted(self, page: str) -> list[Layout]:
        """List the layouts whose chunks suit the accesses: one with pages of size `page`, one without pages."""
        if not (options := self._write_options()):
            return []
        paged = Layout(f"chunks-{page}", sizes.parse_size(page), options)
        return [paged, Layout("chunks", options=options)]

    def _write_options(self) -> Path | None:
        """Write h5repack options that change the chunks.

        Returns:
            Path of an options file for all files, or of a folder if the options differ between files. None if no file
            would be faster to read.
        """
        if len(self.every) > _MANY_FILES:
            print(f"examining the chunks of {len(self.every):,} files", flush=True)
        texts = {copies.get_copy_name(path, self.is_mirrored): self._list_options(path) for path in self.every}
        texts |= {path.name: self._list_options(path) for path in self.files}
        if not any(texts.values()):
            return None
        if len(set(texts.values())) == 1:
            write_text(one := self.scratch / "chunks.txt", next(iter(texts.values())))
            return one
        folder = self.scratch / "chunks"
        for name, text in texts.items():
            path = folder / f"{name}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, text)
        return folder

    def _list_options(self, path: Path) -> str:
        try:
            return chunking.list_options(path, self.datasets, self.accesses, self.place.network)
        except (Problem, OSError):
            # The run does not read the file, so its chunks do not matter.
            return ""

    def _try_layouts(self, layouts: Iterable[Layout]) -> None:
        """Copy the files of `_object` to each layout, and forecast their reads; record the reason if this fails."""
        questions, folder = [], self.scratch / "forecast"
        for layout in layouts:
            try:
                made = copies.make_copies(layout, self._object, folder / layout.name, self.datasets, self.accesses)
            except Problem as problem:
                self.left_out.append(f"{layout.name}: {problem}")
                continue
            arms = list(ways.list_arms(layout.name, self._is_from_s3, bool(layout.page_size)))
            questions.append(Question(arms, made.files, layout.convert_patterns(self.datasets)))
        for one, reason in zip(questions, self._add_forecasts(questions), strict=True):
            self.left_out += [f"{one.arms[0].layout}: {reason}"] if reason else []
        shutil.rmtree(folder, ignore_errors=True)

    def _add_forecasts(self, questions: Sequence[Question]) -> list[str]:
        """Compute forecasts, add the arms to `considered`, and print the best arm per layout.

        Returns:
            For each layout, an empty string, or the reason why its files cannot be read.
        """
        reasons = []
        for forecast in forecasts.compute_forecasts(questions, self.python, self.accesses, self.place.network):
            reasons.append(forecast if isinstance(forecast, str) else "")
            if not isinstance(forecast, str):
                self.considered += forecast
                best = min(forecast, key=self._compute_rank)
                size = sizes.format_size(round(best.compute_mean("bytes", self.accesses)))
                requests = best.compute_mean("requests", self.accesses)
                print(f"{best.layout}: {requests:,.0f} requests, {size} at best ({best.driver})", flush=True)
        return reasons

    def _describe_copy(self, layout: Layout, made: Made) -> dict:
        sides = {side: getattr(made, side) for side in ("original_bytes", "copy_bytes", "seconds")}
        return {"typed": copies.format_copy_command(layout, self.named, self.is_mirrored), **sides}
