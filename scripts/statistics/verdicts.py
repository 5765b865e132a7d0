"""Runs to verdicts: which arm is faster, by how much, and where an arm stops scaling (METHOD 6, 7, 17, 19)."""

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Sequence

import numpy as np
import pandas as pd

from scripts.frame.blocks import compared
from scripts.statistics import resampling, stats
from scripts.statistics.tables import factors, levels_of, metrics

# Families whose baseline and contender are cells, not levels of a factor.
CONTEST, CONTROL = "contest", "control"
OF_CELLS = (CONTEST, CONTROL)
# What has to be alike in both arms of a block.
OTHER_CODE = "the measuring code differs"
NOT_USED = "not used"
_SAME = {
    "code": OTHER_CODE,
    "data": "the data differ",
    "logical_bytes": "the amount of data differs",
    "packages": "the Python packages differ",
}
# What a block is a piece of (METHOD 2): where it differs between the arms, the comparison does without the block.
_TOGETHER = {
    "session": "in different sessions",
    "machine": "on different machines",
    "device": "on different devices or mounts",
}
# A repeat that takes so much longer than its arm's median in comparison with the other arm's is slow.
SLOW = 1.5
_ORDINALS = {2: "2nd", 3: "3rd"}
_JUDGEMENT = (
    *("blocks", "baseline_s", "contender_s", "ratio", "ratio_low", "ratio_high", "p", "looks", "verdict"),
    *(
        "detectable_ratio",
        "mean_ratio",
        "mean_low",
        "mean_high",
        "slow_baseline",
        "slow_contender",
        "slow_ratio",
        "note",
    ),
)
Pair = tuple[dict, dict]


def verdicts_table(
    matrix: pd.DataFrame,
    runs: pd.DataFrame,
    compare: Sequence[dict],
    equivalence_percent: float = 5,
    seed: int = 1,
    contest: Callable[[dict], Hashable | None] = lambda cell: None,
) -> pd.DataFrame:
    """Return verdicts.csv: one row per comparison and metric, in the order of `compare`, then of the matrix.

    A cell at the baseline's level is compared with each cell that differs from it in that factor alone. All
    comparisons of a factor on `total` are one family, whose p are adjusted jointly (`stats.judge`). The other metrics
    are secondary: each of their rows is a family of its own, so that its p is adjusted for nothing.

    Two families have cells as baseline and contender. Factor `contest`: pairs of one contest that `compare` does not
    name, on `total` alone, all contests together. Factor `control`, the A/A control: a cell and its twin; twins enter
    no other comparison.

    A block counts where both arms have a valid record of one session on one machine, and, where they read from one
    store, from one device and mount. Arms that differ in such a block in measuring code, data or amount of data, or
    that have valid records but no such block, are `not comparable`, have no ratio and enter no family.

    `matrix` and `runs` are those of `tables.read_matrix` and `tables.runs_and_samples`, `compare` has mappings with
    `factor` and `baseline`, its level, `contest` says which contest a cell is in, by its levels; None: in none.
    """
    families: dict[str, list[Pair]] = {}
    for entry in compare:
        families.setdefault(entry["factor"], []).extend(_pairs(matrix, entry["factor"], str(entry["baseline"])))
    named = {frozenset((base["cell"], other["cell"])) for pairs in families.values() for base, other in pairs}
    families[CONTEST] = [pair for pair in _contests(matrix, contest) if frozenset(c["cell"] for c in pair) not in named]
    cells = {cell["cell"]: cell for cell in matrix.to_dict("records")}
    families[CONTROL] = [(cells[cell["twin_of"]], cell) for cell in cells.values() if cell["twin_of"] in cells]
    names, blocks, rows = metrics(runs), np.sort(runs["repeat"].unique()), []
    columns = ["status", *(f"seconds {name}" for name in names), *_SAME, *_TOGETHER]
    wide = {column: _by_block(runs, column).reindex(blocks) for column in columns}
    for factor, pairs in families.items():
        arms = {column: _arms(table, pairs) for column, table in wide.items()}
        apart = _apart(arms, pairs)
        differing = _differing(arms, apart, blocks)
        wanted = [name for name in names if name == "total" or factor != CONTEST]
        judged = {name: _judge(name, arms, blocks, apart, differing, equivalence_percent, seed) for name in wanted}
        for number, (base, other) in enumerate(pairs):
            level = "cell" if factor in OF_CELLS else factor
            head = {"factor": factor, "baseline": base[level], "contender": other[level]}
            for name in factors(matrix):
                head[name] = base[name] if factor == CONTROL or base[name] == other[name] else ""
            for name, judgements in judged.items():
                role = CONTROL if factor == CONTROL else "decides" if name == "total" else "secondary"
                rows.append({**head, "metric": name, "role": role, **judgements[number]})
    columns = ["factor", "baseline", "contender", *factors(matrix), "metric", "role", *_JUDGEMENT]
    return pd.DataFrame(rows, columns=columns)


def stops_scaling(
    runs: pd.DataFrame, arm: Sequence[str], by: str = "workers", time: str = "total_s", equivalence_percent: float = 5
) -> pd.DataFrame:
    """Return where each arm stops scaling: the workers beyond which no larger number is shown to take less time.

    Less time: over complete blocks, the interval of the ratio of total times (`stats.bootstrap_interval`) lies below 1
    and not inside ±`equivalence_percent`. It is not corrected for the numbers of comparisons: it describes.

    `runs` has one row per valid record (or several that are alike) with the factors `arm` that tell arms apart, the
    factor `by` that grows, whole numbers, repeat, perhaps session, and the column `time` of the total time in seconds.

    Returns:
        One row per arm, in order of appearance: its levels, base and base_s (the least level and its median time,
        METHOD 19), outcome (`single`: one level was measured; `few`: blocks are too few to tell; `stops`; `gains`: the
        most measured still reduces the time), stops_at, next; ratio, ratio_low and ratio_high of the time at `next` to
        that at `stops_at`.
    """
    rows, block = [], [column for column in ("repeat", "session") if column in runs]
    for levels, part in runs.groupby(list(arm), sort=False, observed=True):
        part = part.assign(**{by: part[by].astype(int)})
        totals = part.pivot_table(index=block, columns=by, values=time, aggfunc="first")
        rows.append({**dict(zip(arm, levels, strict=True)), **_scaling(totals, equivalence_percent)})
    columns = [*arm, "base", "base_s", "outcome", "stops_at", "next", "ratio", "ratio_low", "ratio_high"]
    return pd.DataFrame(rows, columns=columns).astype({"stops_at": "Int64", "next": "Int64"})


def _pairs(matrix: pd.DataFrame, factor: str, baseline: str) -> list[Pair]:
    originals = matrix[matrix["twin_of"] == ""]
    cells = {cell["cell"]: cell for cell in originals.to_dict("records")}
    return [(cells[base], cells[other]) for base, other in compared(levels_of(originals), factor, baseline)]


def _contests(matrix: pd.DataFrame, contest: Callable[[dict], Hashable | None]) -> list[Pair]:
    """All pairs of cells of one contest, in the order of the matrix; twins are in none."""
    contests: dict[Hashable, list[dict]] = {}
    for cell in matrix[matrix["twin_of"] == ""].to_dict("records"):
        contests.setdefault(contest(cell), []).append(cell)
    return [pair for name, cells in contests.items() if name is not None for pair in itertools.combinations(cells, 2)]


def _by_block(runs: pd.DataFrame, column: str) -> pd.DataFrame:
    """A column of the runs as a table of blocks and cells, missing where there is no record, or no valid one."""
    rows = runs if column == "status" else runs[runs["ok"].astype(bool)]
    rows = rows if column in rows else rows.assign(**{column: math.nan})
    return rows.pivot(index="repeat", columns="cell", values=column)


def _arms(table: pd.DataFrame, pairs: list[Pair]) -> tuple[np.ndarray, np.ndarray]:
    """The table's values for all baselines and for all contenders, each by block and comparison."""
    cells = ([pair[arm]["cell"] for pair in pairs] for arm in (0, 1))
    return tuple(table.reindex(columns=names).to_numpy() for names in cells)


def _judge(
    name: str,
    arms: dict[str, tuple],
    blocks: np.ndarray,
    apart: dict[str, np.ndarray],
    differing: list[str],
    equivalence_percent: float,
    seed: int,
) -> list[dict]:
    """The judgement of each comparison of a factor, on one metric."""
    base, other = (table.astype(float) for table in arms[f"seconds {name}"])
    complete = np.logical_and.reduce([(table > 0) & (table < math.inf) for table in (base, other)])
    lost = ~complete & (pd.notna(arms["status"][0]) | pd.notna(arms["status"][1]))
    split = np.logical_or.reduce([complete & parts for parts in apart.values()])
    used = complete & ~split
    base, other = (np.where(used, table, math.nan) for table in (base, other))
    d = np.where([not text for text in differing], np.log(other) - np.log(base), math.nan)
    means = [resampling.total_over_total(*arms, seed) for arms in zip(other.T, base.T, strict=True)]
    looks = [_looks(sessions[rows]) for sessions, rows in zip(arms["session"][0].T, used.T, strict=True)]
    each = range(d.shape[1])
    families = [list(each)] if name == "total" else [[number] for number in each]
    judgements = [{} for _ in each]
    for family in families:
        judged = stats.judge(
            d[:, family], equivalence_percent, seed, [looks[one] for one in family], [means[one] for one in family]
        )
        for number, verdict in zip(family, judged, strict=True):
            never = not used[:, number].any() and split[:, number].any()
            why = "" if never else _note(verdict, looks[number], means[number], equivalence_percent)
            gone = {"failed, invalid or missing in an arm": lost[:, number]}
            gone |= {
                f"measured {what}, {NOT_USED}": complete[:, number] & apart[column][:, number]
                for column, what in _TOGETHER.items()
            }
            notes = [
                differing[number] or why,
                *(f"{_blocks(blocks[those])} {how}" for how, those in gone.items() if those.any()),
            ]
            values = (
                *(int(used[:, number].sum()), *(stats.median(arm[:, number]).value for arm in (base, other))),
                *(verdict.ratio, verdict.low, verdict.high, verdict.p, looks[number]),
                *("not comparable" if differing[number] or never else verdict.verdict, verdict.detectable_ratio),
                *(*means[number][:3], *_slow(d[:, number]), "; ".join(filter(None, notes))),
            )
            judgements[number] = dict(zip(_JUDGEMENT, values, strict=True))
    return judgements


def _apart(arms: dict[str, tuple], pairs: list[Pair]) -> dict[str, np.ndarray]:
    """Where both arms have a valid record, but not of one session, machine or device, by block and comparison."""
    apart = {}
    for column in _TOGETHER:
        base, other = arms[column]
        apart[column] = pd.notna(base) & pd.notna(other) & (base != other)
    # Stores lie on devices of their own.
    apart["device"] &= np.array([base.get("store") == other.get("store") for base, other in pairs], dtype=bool)
    return apart


def _looks(sessions: Iterable[str]) -> int:
    """How often a verdict could have been read, by the sessions of the blocks that it rests on; at least once."""
    blocks = pd.Series(sessions, dtype=object).value_counts(sort=False).sort_index().cumsum()
    return max(1, int((blocks >= stats.MIN_BLOCKS).sum()))


def _differing(arms: dict[str, tuple], apart: dict[str, np.ndarray], blocks: np.ndarray) -> list[str]:
    """In words, what differs between the arms of each comparison in a block that it could use; "" if nothing does."""
    notes: list[list[str]] = [[] for _ in range(arms["status"][0].shape[1])]
    together = ~np.logical_or.reduce(list(apart.values()))
    for column, what in _SAME.items():
        base, other = arms[column]
        differs = together & pd.notna(base) & pd.notna(other) & (base != other)
        for number in np.flatnonzero(differs.any(axis=0)):
            notes[number].append(f"{what} between the arms in {_blocks(blocks[differs[:, number]])}")
    return ["; ".join(parts) for parts in notes]


def _note(verdict: stats.Verdict, looks: int, mean: stats.Estimate, equivalence_percent: float) -> str:
    if verdict.verdict == "too few repeats":
        return f"{verdict.blocks} complete blocks, {stats.MIN_BLOCKS} are needed"
    if verdict.verdict != "no evidence":
        return ""
    bound, level = 1 + equivalence_percent / 100, stats.LEVEL / looks
    if 1 / bound <= verdict.low and verdict.high <= bound:
        return f"the medians are the same, the means may not be: {mean.value:.2f} [{mean.low:.2f}, {mean.high:.2f}]"
    needed = f"{level:.2g}" + (f", seen for the {_ORDINALS.get(looks, f'{looks}th')} time" if looks > 1 else "")
    if verdict.p <= level:
        return f"p <= {needed}, but the interval includes 1"
    excludes = verdict.low > 1 or verdict.high < 1
    return f"the interval excludes 1, but p > {needed}" if excludes else ""


def _slow(d: np.ndarray) -> tuple[int, int, float]:
    """In how many blocks baseline and contender took much longer than in the others, and how many times as long.

    A median shows nothing of them.
    """
    d = d[np.isfinite(d)]
    off = d - np.median(d) if len(d) else d
    slow = np.abs(off) > math.log(SLOW)
    ratio = float(np.exp(np.median(np.abs(off[slow])))) if slow.any() else math.nan
    return int((off[slow] < 0).sum()), int((off[slow] > 0).sum()), ratio


def _blocks(blocks: Iterable[int]) -> str:
    numbers = [str(block) for block in sorted(blocks)]
    return f"block{'s' * (len(numbers) > 1)} {', '.join(numbers)}"


def _scaling(totals: pd.DataFrame, equivalence_percent: float) -> dict:
    counts = list(totals.columns)
    base = {"base": counts[0], "base_s": float(totals[counts[0]].median())}
    if len(counts) == 1:
        return base | {"outcome": "single"}
    bound = math.log1p(equivalence_percent / 100)
    logs = np.log(totals.to_numpy(dtype=float))
    for place, count in enumerate(counts[:-1]):
        d = logs[:, place + 1 :] - logs[:, [place]]
        low, high = stats.bootstrap_interval(d)
        if ((high < 0) & (low < -bound)).any():
            continue
        if np.isnan(high).any():
            return base | {"outcome": "few"}
        ratio, least, most = np.exp([np.nanmedian(d[:, 0]), low[0], high[0]]).tolist()
        ends = {"ratio": ratio, "ratio_low": least, "ratio_high": most}
        return base | {"outcome": "stops", "stops_at": count, "next": counts[place + 1], **ends}
    return base | {"outcome": "gains"}
