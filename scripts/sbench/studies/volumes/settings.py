"""The settings of a cell of the volumes study, as its measuring program is given them, and the study's section."""

from dataclasses import dataclass

from sbench.probe.fields import read_fields


@dataclass(frozen=True)
class Levels:
    """The levels of a cell, as text; cells whose credits are as they are lack `start_credits`."""

    store: str
    job: str
    background: str
    start_credits: str = ""
    control: str = ""


@dataclass(frozen=True)
class Job:
    """A job file of fio."""

    name: str
    text: str


@dataclass(frozen=True)
class Load:
    """What loads a volume in the background: a job, and the store that it writes to."""

    job: Job
    store: dict


@dataclass(frozen=True)
class Start:
    """What brings a volume's credits to a `state` before a battery; "": nothing does, they are as they are.

    Attributes:
        seconds: how long that takes.
        ios: I/Os of the device that spend the credits.
        text: the job file that does, "" where credits are to be full.
    """

    state: str = ""
    seconds: float = 0
    ios: float = 0
    text: str = ""


@dataclass(frozen=True)
class Settings:
    """The settings of a cell; a battery runs its job `jobs` times, and more often if it lasts less than `at_least_s`.

    Attributes:
        pause_s: seconds between two jobs.
        background: the load beside the battery as a JSON object (`load`), None without one.
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
        """The load beside the battery."""
        return read_fields(Load, self.background) if self.background else None


@dataclass(frozen=True)
class Section:
    """What a configuration says of the study.

    Attributes:
        batteries: how many each volume has.
        other: the store of the load where the background is another volume.
    """

    batteries: int
    limits: list[str | dict]
    imports: list[str | dict]
    time_limit_s: float
    background_job: str
    other: str | None = None


@dataclass(frozen=True)
class Judging:
    """How batteries are judged, by a whole configuration and its section; `compare`: stores with the first if empty."""

    limits: list[str | dict]
    compare: list[dict]
    equivalence_percent: float
    seed: int
