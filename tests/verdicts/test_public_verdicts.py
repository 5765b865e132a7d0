"""The public functions of sbench.verdicts: documented examples, and input that they refuse."""

import doctest
import re

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT, run_code

from sbench import verdicts
from sbench.verdicts import api, compare_sessions, histograms, judge, stats

BLOCKS = pd.DataFrame({"a": [1.0, 1.1, 1.2, 1.0, 1.1, 1.2], "b": [2.0, 2.1, 2.2, 2.0, 2.1, 2.2]})


@pytest.mark.parametrize("module", [api, histograms], ids=lambda module: module.__name__)
def test_examples_of_docstrings_are_true(module):
    done = doctest.testmod(module)
    assert done.attempted
    assert not done.failed


def test_examples_of_the_page_are_true():
    text = (ROOT / "docs/verdicts.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        exec(compile(example, "docs/verdicts.md", "exec"), {})


def test_judge_is_the_rule_of_the_pages():
    d = np.log(BLOCKS[["b"]].to_numpy()) - np.log(BLOCKS[["a"]].to_numpy())
    assert tuple(judge(BLOCKS, "a").loc["b"]) == tuple(stats.judge_family(d)[0])


def test_a_failed_arm_takes_its_block_out_of_its_own_comparison_alone():
    blocks = BLOCKS.assign(c=[np.nan, *BLOCKS["b"][1:]])
    table = judge(blocks, "a")
    assert table["blocks"].tolist() == [6, 5]
    assert table["verdict"].tolist() == ["slower", "too few repeats"]


def test_arms_of_which_one_failed_are_not_the_same():
    blocks = pd.DataFrame({"a": [1.0] * 8, "b": [1.001] * 8, "c": [1.001] * 7 + [np.nan]})
    assert judge(blocks, "a")["verdict"].tolist() == ["same", "no evidence"]
    assert set(judge(blocks, "c")["verdict"]) == {"no evidence"}


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: judge(BLOCKS, "c"), "must have a column 'c'"),
        (lambda: judge(BLOCKS[["a"]], "a"), "at least another"),
        (lambda: judge(BLOCKS - 1, "a"), "times must be positive"),
        (lambda: judge(BLOCKS.replace(2.0, np.inf), "a"), "times must be positive"),
        (lambda: compare_sessions(BLOCKS, BLOCKS[["a"]]), "the same columns"),
        (lambda: compare_sessions(BLOCKS, BLOCKS[1:], paired=True), r"equal numbers of sessions \(got 6 and 5\)"),
    ],
)
def test_what_is_no_table_of_times_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_pairs_are_judged_by_their_differences():
    table = compare_sessions(BLOCKS[["a"]], BLOCKS[["b"]].rename(columns={"b": "a"}), paired=True)
    assert tuple(table.loc["a"]) == tuple(judge(BLOCKS, "a").loc["b"])


def test_public_names_are_there_and_numbers_alone_import_nothing_heavy():
    assert all(hasattr(verdicts, name) for name in verdicts.__all__)
    done = run_code("from sbench.verdicts import MIN_BLOCKS; print(*sys.modules)")
    assert not {"numpy", "pandas", "scipy"} & {*done.stdout.split()}
    assert "sbench.verdicts" in done.stdout
