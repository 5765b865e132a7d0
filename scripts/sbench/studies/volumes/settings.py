"""Define the settings of a cell of the volumes study, and the section of the study."""

from dataclasses import dataclass

from sbench.probe.fields import read_fields


@dataclass(frozen=True)
class Levels:
    """The levels of a cell, as text; `start_credits` is "" if credits stay as they are."""

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
    """A background load of a volume: a job, and the store that it writes to."""

    job: Job
    store: dict


@dataclass(frozen=True)
class Start:
    """The preparation of a volume's credits to a `state` before a battery; "" leaves them as they are.

    Attributes:
        seconds: duration.
        ios: I/Os of the device that spend the credits.
        text: the job file that spends the credits, "" if they are to be full.
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
        background: the background load as a JSON object (`load`), None without a load.
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
        """Return the background load."""
        return read_fields(Load, self.background) if self.background else None


@dataclass(frozen=True)
class Section:
    """The section of the study in a configuration.

    Attributes:
        batteries: batteries per volume.
        other: the store of the load if the background is another volume.
    """

    batteries: int
    limits: list[str | dict]
    imports: list[str | dict]
    time_limit_s: float
    background_job: str
    other: str | None = None


@dataclass(frozen=True)
class Judging:
    """Settings of verdicts, from a configuration and its section; an empty `compare` compares with the first store."""

    limits: list[str | dict]
    compare: list[dict]
    equivalence_percent: float
    seed: int
