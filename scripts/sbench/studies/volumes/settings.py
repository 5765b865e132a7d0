"""Define the settings of a cell of the volumes study, and the study's section in the configuration."""

from dataclasses import dataclass

from sbench.probe.fields import read_fields


@dataclass(frozen=True)
class Levels:
    """The factor levels of a cell. If `start_credits` is empty, a volume's burst credits are left as they are."""

    store: str
    job: str
    background: str
    start_credits: str = ""
    control: str = ""


@dataclass(frozen=True)
class Job:
    """The name and content of a fio job file."""

    name: str
    text: str


@dataclass(frozen=True)
class Load:
    """A background load: a fio job that runs during a battery, and the store to which it writes."""

    job: Job
    store: dict


@dataclass(frozen=True)
class Start:
    """How to bring a volume's burst credits to a given state before a battery.

    Attributes:
        state: `full` or `spent`; an empty string leaves the credits unchanged.
        seconds: duration of the preparation.
        ios: device I/Os needed to spend the credits.
        text: content of the job file that spends the credits; empty unless `state` is `spent`.
    """

    state: str = ""
    seconds: float = 0
    ios: float = 0
    text: str = ""


@dataclass(frozen=True)
class Settings:
    """The settings of a cell.

    Attributes:
        cell: factor levels of the cell.
        store: the store's entry in the configuration.
        job: the job file that a battery runs repeatedly.
        jobs: minimum number of jobs in a battery.
        at_least_s: minimum duration of a battery in seconds; further jobs follow until it is reached.
        pause_s: seconds between two jobs.
        background: the background load as a JSON object (see `load`), or None.
        start: preparation of the burst credits.
    """

    cell: Levels
    store: dict
    job: Job
    jobs: int
    at_least_s: float
    pause_s: float
    background: dict | None = None
    start: Start = Start()

    @property
    def load(self) -> Load | None:
        """Return the background load, or None."""
        return read_fields(Load, self.background) if self.background else None


@dataclass(frozen=True)
class Section:
    """The study's section in a configuration.

    Attributes:
        batteries: number of batteries per volume.
        limits: latency limits, as names or mappings.
        imports: fio results to import, as paths or mappings.
        time_limit_s: maximum duration of a battery in seconds.
        background_job: name of the job file of the background load.
        other: name of the store that the background load writes to if it runs on another volume.
    """

    batteries: int
    limits: list[str | dict]
    imports: list[str | dict]
    time_limit_s: float
    background_job: str
    other: str | None = None


@dataclass(frozen=True)
class Judging:
    """The settings, from the whole configuration and from the study's section, that determine verdicts.

    Attributes:
        limits: latency limits, as names or mappings.
        compare: comparisons of the configuration; if empty, all stores are compared with the first.
        equivalence_percent: differences below this percentage count as equivalent.
        seed: seed for resampling.
    """

    limits: list[str | dict]
    compare: list[dict]
    equivalence_percent: float
    seed: int
