"""What programs print steers no terminal and forges no line, whatever names, tables and archives hold."""

import hashlib
import json
import re
import sys
from pathlib import Path

import h5py
import pytest
from conftest import ROOT, sbench

from sbench.probe.program import Escaped, Problem, escape_text, run_main
from sbench.runs import archive
from tests.runs.test_archive import FACTS, changed, minimal

HOSTILE = "a\nproblem: forged\x1b]0;title\x07\x9b2J\u202eb\u2028c\udcff"
SHOWN = r"a\nproblem: forged\x1b]0;title\x07\x9b2J\u202eb\u2028c\udcff"


def assert_harmless(text: str) -> None:
    """See that each character of a text but its line ends can be printed, and that no line is forged."""
    assert all(line.isprintable() for line in text.splitlines()), ascii(text)
    assert "\nproblem: forged" not in text


def test_what_is_printed_is_escaped_and_line_ends_of_the_program_stay(capsys: pytest.CaptureFixture):
    def main() -> int:
        print(HOSTILE)
        print(f"{HOSTILE}\n", 1, sep="\n", end="\n\n")
        print("fine", file=sys.stderr)
        raise Problem(f"{HOSTILE}: remove it")

    with pytest.raises(SystemExit):
        run_main(main)
    printed = capsys.readouterr()
    assert printed.out == f"{SHOWN}\n{SHOWN}\\n\n1\n\n"
    assert printed.err == f"fine\nproblem: {SHOWN}: remove it\n"


def test_a_problem_is_one_line_wherever_it_goes():
    assert str(Problem(HOSTILE)) == SHOWN
    assert escape_text(escape_text(HOSTILE)) == SHOWN


def test_lines_of_others_stay_lines(capsys: pytest.CaptureFixture):
    namespace = {"__name__": "argparse"}
    exec("def write(stream): return stream.write('usage: a\\n  b\\x1b\\n')", namespace)
    assert namespace["write"](Escaped(sys.stdout)) == len("usage: a\n  b?\n")
    assert capsys.readouterr().out == "usage: a\n  b\\x1b\n"


def test_names_of_files_and_datasets_are_escaped_by_look(tmp_path: Path):
    name = HOSTILE.replace("\udcff", "")
    with h5py.File(tmp_path / f"{name}.h5", "w") as file:
        file[name] = [1, 2]
    (tmp_path / f"{name}.txt").write_text("text", encoding="utf-8")
    done = sbench("look", tmp_path / f"{name}.txt", "--datasets", "/**")
    assert (done.returncode, done.stderr.count("problem: ")) == (2, 2)
    assert_harmless(done.stdout + done.stderr)
    assert r"problem: forged\x1b]0;title\x07" in done.stderr
    assert_harmless("".join(vars(sbench("look", tmp_path))[key] for key in ("stdout", "stderr")))


@pytest.mark.parametrize("header", ['"time\x1b]0;title\x07\u202e",b', "time\x1b]0;title\x07,time\x1b]0;title\x07"])
def test_a_header_sets_no_title_in_an_audit(tmp_path: Path, header: str):
    (tmp_path / "a.csv").write_text(f"{header}\n1,2\n", encoding="utf-8")
    done = sbench("published", "--audit", tmp_path / "a.csv")
    assert done.returncode == 2
    assert_harmless(done.stdout + done.stderr)
    assert r"time\x1b]0" in done.stderr


@pytest.fixture(scope="module")
def example() -> Path:
    """Return the archive of the example."""
    (path,) = (ROOT / "results/example").glob(f"*{archive.SUFFIX}")
    return path


def test_an_archive_is_cited_by_its_records_and_not_by_what_its_facts_claim(example: Path, tmp_path: Path):
    honest = sbench("archive", "--cite", example)
    assert honest.returncode == 0, honest.stderr
    assert "author = {NAME}," in honest.stdout
    assert honest.stderr.splitlines()[-1].startswith("replace NAME by your name, or add --by ")
    named = sbench("archive", "--cite", example, "--by", "Ada Lovelace")
    assert named.stdout == honest.stdout.replace("NAME", "Ada Lovelace")
    assert "NAME" not in named.stderr

    def forge(contents: dict[str, bytes]) -> None:
        manifest, name = json.loads(contents[archive.MANIFEST]), "shots/facts.json"
        facts = json.loads(contents[name])
        contents[name] = json.dumps(facts | {"git": [HOSTILE], "sessions": ["2199-01-01T00:00:00Z\x1b]0;"]}).encode()
        manifest["files"][name] = hashlib.sha256(contents[name]).hexdigest()
        contents[archive.MANIFEST] = json.dumps(manifest).encode()

    path = tmp_path / example.name
    path.write_bytes(example.read_bytes())
    done = sbench("archive", "--cite", changed(path, forge))
    assert (done.returncode, done.stdout) == (0, honest.stdout)


def test_facts_of_another_project_are_one_line_and_leave_no_page(tmp_path: Path):
    config = {"run": "tiny", "libraries": {}, "studies": {"shots": {}}}
    path = minimal(tmp_path / f"foreign{archive.SUFFIX}", FACTS | {"config": config})
    for words in (("report", path, "--name", "foreign"), ("archive", path, "--cite")):
        done = sbench(*words)
        assert (done.returncode, done.stderr.splitlines()[-1].count("problem: ")) == (2, 1)
        assert re.search(r"foreign.tar.xz: shots: the configuration: .* is missing$", done.stderr), done.stderr
    assert not (ROOT / "reports/foreign").exists()
