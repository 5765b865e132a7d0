"""What the documents say can be done: commands, options, targets, paths, links, cited tests and configurations."""

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml
from conftest import ROOT, program

from sbench.cli import options
from sbench.cli.__main__ import FIRST, OTHERS
from sbench.design import config as configuration
from sbench.design import matrix
from sbench.pages import comparisons, judgement, names, words
from sbench.probe.program import Problem, build_command
from sbench.runs import compare
from tests import rules

DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "config/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
README = DOCUMENTS[0].read_text(encoding="utf-8")
BIN = Path(sys.executable).parent
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
# Where a path that a document names begins; what a run writes is not there before it.
FOLDERS = ("config", "docs", "envs", "notebooks", "plugins", "rules", "scripts", "tests")
TOP = ("Makefile", "Snakefile", *(f"{folder}/" for folder in FOLDERS))
# The targets of the Makefile before there was sbench.
FORMER = [
    *("help", "setup", "run", "quick", "import", "published", "audit", "compare"),
    *("baseline", "archive", "report", "cite", "fit", "look", "advise", "bisect", "check", "plan"),
    *("again", "export", "pack", "test", "faults", "bench", "mutants", "lock", "format"),
]
PROGRAMS = sorted(
    ".".join(path.relative_to(ROOT / "scripts").with_suffix("").parts)
    for path in (ROOT / "scripts").rglob("*.py")
    if all(line in path.read_text(encoding="utf-8") for line in ("\ndef main(", "\nif __name__ =="))
)


def blocks(document: Path, language: str) -> list[str]:
    return [body for name, body in FENCE.findall(document.read_text(encoding="utf-8")) if name == language]


COMMANDS = [
    pytest.param(line, id=f"{document.name}: {line}")
    for document in DOCUMENTS
    for body in blocks(document, "sh")
    for line in body.splitlines()
    if line.strip()
]
EXAMPLES = [pytest.param(body, id=body.partition("\n")[0]) for path in DOCUMENTS for body in blocks(path, "yaml")]


def parser_of(name: str) -> options.Parser:
    """Return the parser of a command of sbench, which takes arguments and starts nothing.

    Raises:
        Problem: there is no such command; from the parser: it does not understand the arguments.
    """
    if name not in FIRST | OTHERS:
        raise Problem(f"sbench has no command {name}")
    parser = options.Parser(name, "", os.getcwd())
    importlib.import_module(f"sbench.cli.{name}").add_options(parser)
    return parser


def plan_of(name: str, arguments: list[str]) -> list[str]:
    """Return the arguments of the plan of what a command would measure."""
    given = vars(parser_of(name).parse_arguments(arguments))
    config = "config/quick.yaml" if given.get("quick") else given["config"]
    imports = given["files"] if name == "import" else given.get("imports", [])
    # To move records aside there must be some, so what is measured again is left out.
    chosen = {"--name": [given["name"]], "--study": [given.get("study")], "--only": given.get("only", [])}
    chosen["--imports"] = imports
    return ["plan", config, *(word for option, words in chosen.items() if any(words) for word in (option, *words))]


def dry(line: str) -> list[str]:
    """Return the form of a command that measures, builds and changes nothing, but fails where the command would.

    Raises:
        Problem: sbench does not understand it. What it understands, and is neither planned nor a plan, is not started.
    """
    words = shlex.split(line)
    name, *arguments = words
    if name == "./sbench" and arguments[0] in ("run", "import", "plan"):
        return build_command("sbench.cli", *plan_of(arguments[0], arguments[1:]))
    if name == "pip":
        # A machine's own Python may refuse to be installed into, and need not have pip.
        return [str(BIN / "uv"), "pip", "install", "--dry-run", "--python", sys.executable, *arguments[1:]]
    if name == "./sbench":
        parser_of(arguments[0]).parse_arguments(arguments[1:])
        return []
    if name == "make":
        # make takes any variable; one that the Makefile does not read is of before there was sbench.
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        unread = [word for word in arguments if "=" in word and f"$({word.partition('=')[0]})" not in makefile]
        assert unread == [], line
        return ["make", "--dry-run", *arguments]
    if name == ".venv/bin/snakemake":
        if "--report" in arguments:
            # It is of a finished run, which tests/measure/test_workflow.py has.
            del arguments[(place := arguments.index("--report")) : place + 2]
        return [str(BIN / "snakemake"), *arguments, *([] if "--lint" in arguments else ["--dry-run"])]
    if name == ".venv/bin/python" and arguments[:2] == ["-m", "pytest"]:
        return [sys.executable, *arguments, "--collect-only", "-q", "-p", "no:cacheprovider"]
    if name == ".venv/bin/ruff":
        # Whether all code is clean is not for the documents to say.
        arguments.append("--show-files")
    if name.startswith(".venv/bin/"):
        return [str(BIN / name.removeprefix(".venv/bin/")), *arguments]
    return words


def call(command: list[str], cwd: Path) -> None:
    if not command:
        return
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.fail(f"{shlex.join(command)}: {error}")
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_works_in_its_dry_form(line: str, clone: Path):
    # An earlier command of the same document writes it.
    shutil.copy(clone / "config/quick.yaml", clone / "mine.yaml")
    # What is imported is looked at, to say how much it is.
    (clone / "imports").mkdir()
    (clone / "imports/job.json").write_text("{}", encoding="utf-8")
    call(dry(line), clone)


@pytest.mark.parametrize(
    "line",
    [
        "make rnu",
        "make compare",
        "make run STUDY=shots",
        "./sbench rnu",
        "./sbench run --stdy shots",
        "./sbench run --study shot",
        "./sbench run --only library=hdf5-3.0.0",
        "./sbench run config/none.yaml",
        "./sbench plan config/none.yaml",
        "./sbench import none",
        "./sbench advise --latency 20",
        "./sbench advise a.h5 --latency much",
        "./sbench report a.tar.xz b.tar.xz",
        "./sbench bisect s3fs 2024.5.0",
        ".venv/bin/snakemake --cores 2 --configfile config/none.yaml",
        ".venv/bin/snakemake --coers 2",
        ".venv/bin/python -m pytest tests/test_none.py",
        ".venv/bin/none",
        "none",
    ],
)
def test_a_command_that_does_not_exist_is_caught(line: str, clone: Path):
    with pytest.raises((AssertionError, pytest.fail.Exception, Problem)):
        call(dry(line), clone)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_calls_of_sbench_are_understood(document: Path):
    """Those in sentences, tables, lists and workflows, too; what is in angle brackets is a word."""
    text = document.read_text(encoding="utf-8")
    calls = [found for found in CODE.findall(FENCE.sub("", text)) if re.match(r"(\./)?sbench [a-z]", found)]
    calls += re.findall(r"^(?:.*run: | *(?:srun )?)(\./sbench [a-z].*)$", text, re.MULTILINE)
    for name, *arguments in (shlex.split(found)[1:] for found in calls):
        understand(name, arguments)


def understand(name: str, arguments: list[str]) -> None:
    """Parse a call of sbench; a sentence may name a command, or options of it, without what they need.

    Raises:
        Problem: the command does not understand it.
    """
    parser = parser_of(name)
    known = {option for action in parser._actions for option in action.option_strings}
    if not set(arguments) <= known:
        parser.parse_arguments(arguments)


def test_former_targets_of_make_have_their_command():
    text = (ROOT / "docs/commands.md").read_text(encoding="utf-8").partition("## What was typed before")[2]
    assert re.findall(r"^\| `make (\w+)\b", text, re.MULTILINE) == FORMER


def test_make_has_what_the_documents_say_that_it_has():
    targets = set(targets_of_make())
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8").partition("## What was typed before")[0]
        assert set(re.findall(r"`make ([a-z]+)", text)) - targets == set(), document.name


def test_the_workflow_for_another_repository_calls_what_there_is(clone: Path, tmp_path: Path):
    (text,) = [body for body in blocks(ROOT / "docs/ci.md", "yml") if "\n  compare:\n" in body]
    steps = yaml.safe_load(text)["jobs"]["compare"]["steps"]
    made = [step["run"] for step in steps if step.get("run", "").startswith("./sbench ")]
    assert [line.split()[1] for line in made] == ["run", "compare"]
    (tmp_path / "benchmarks").mkdir()
    shutil.copy(clone / "config/smoke.yaml", tmp_path / "benchmarks/ci.yaml")
    for line in made:
        call(dry(line), clone)
    # The page that is the job's summary is where a comparison is written.
    assert f"reports/{compare.OUT}/index.md" in text


def test_there_are_commands_and_examples_to_look_at():
    assert {"make run", "make test"} <= {param.values[0] for param in COMMANDS}
    assert EXAMPLES


def test_every_program_explains_itself_and_has_the_options_that_documents_give_it():
    explained = {name: program(name, "--help") for name in PROGRAMS}
    explained |= {f"cli {name}": program("sbench.cli", name, "--help") for name in FIRST | OTHERS}
    assert {name: done.stderr for name, done in explained.items() if done.returncode} == {}
    assert [name for name, done in explained.items() if not done.stdout.startswith("usage:")] == []
    paths = (DOCUMENTS[0], DOCUMENTS[2], ROOT / "docs/commands.md", ROOT / "docs/systems.md")
    texts = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    named = [text for text in CODE.findall(FENCE.sub("", texts)) if text.startswith("--")]
    called = re.findall(r"python -sE scripts/(\w+)\.py((?: [^`\n]+)?)", texts)
    options = {option for _, rest in called for option in re.findall(r"--[\w-]+", rest)} | set(named)
    helps = "".join(done.stdout for done in explained.values())
    snakemake = subprocess.run([BIN / "snakemake", "--help"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"--[\w-]+", helps + snakemake))
    assert {name for name, _ in called} <= set(PROGRAMS)
    assert {option.split()[0] for option in options} - {"--"} - known == set()


def test_the_commands_in_the_readme_are_those_of_sbench():
    table = README.partition("## Commands")[2].partition("\n## ")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.MULTILINE)) == FIRST | OTHERS


def test_the_readme_begins_with_what_takes_seconds_and_installs_without_a_clone():
    start, install = (README.partition(f"\n## {name}\n")[2] for name in ("Quick start", "Installation without a clone"))
    lines = [line.removeprefix("./sbench ") for line in FENCE.search(start)[2].splitlines()]
    assert [line.split(" ")[0] for line in lines[:2]] == ["look", "count"]
    assert lines[2:4] == ["run --quick", "make run"]
    assert "make" not in FENCE.search(install)[2]


def test_a_run_takes_as_long_as_the_readme_says_that_it_was_measured_to(clone: Path, tmp_path: Path):
    empty = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(build_command("sbench.cli", "plan"), cwd=clone, env=empty, capture_output=True, text=True)
    announced = int(re.search(r"^in all: .* about (\d+) min, including .* to build", done.stdout, re.MULTILINE)[1])
    idle, busy = map(
        int, re.search(r"\| `make run` .* (\d+) minutes on idle cores, (\d+) on busy ones", README).groups()
    )
    assert idle <= announced <= busy


def targets_of_make() -> list[str]:
    return re.findall(r"^(\w+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_targets_for_contributors_are_those_of_the_makefile():
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `make (\w+)` \|", contributing, re.MULTILINE)
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[1].split()
    assert sorted(told) == sorted(targets_of_make()) == sorted(phony)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path):
    text = FENCE.sub("", document.read_text(encoding="utf-8"))
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    missing = [link for link in links if not (document.parent / unquote(link.partition("#")[0])).exists()]
    assert missing == []


def test_pages_in_the_repository_are_markdown_with_its_pictures_and_link_to_what_is_in_it():
    listed = subprocess.run(["git", "ls-files", "reports"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = set(listed.splitlines())
    pages = [Path(name) for name in files if name.endswith(".md")]
    links = {
        (page, link) for page in pages for link in re.findall(r"\]\(([^()#]+)\)", (ROOT / page).read_text("utf-8"))
    }
    assert len(links) > 100
    inside = {os.path.normpath(page.parent / link) for page, link in links if "://" not in link}
    # Claims of this project link to its documents.
    assert [name for name in inside - files if not (name.startswith("docs/") and (ROOT / name).exists())] == []
    assert {name for name in files - inside if not name.endswith(".md")} == set()
    assert sum((ROOT / name).stat().st_size for name in files) <= 2_000_000


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_that_are_named_exist(document: Path):
    named = [text.split("`")[0] for text in CODE.findall(document.read_text(encoding="utf-8"))]
    paths = [text for text in named if text.startswith(TOP) and not re.search(r"[<{ ]", text)]
    missing = [path for path in paths if not (list(ROOT.glob(path)) if "*" in path else (ROOT / path).exists())]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_names_that_are_cited_exist(document: Path):
    """A test by its name; a name that stands before "in `scripts/….py`" by its definition there."""
    text = document.read_text(encoding="utf-8")
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("*/test_*.py"))
    cited = [name for name in CODE.findall(text) if re.fullmatch(r"test_\w+", name)]
    files = {path.stem for path in (ROOT / "tests").glob("*/test_*.py")}
    assert [name for name in cited if name not in files and f"def {name}(" not in tests] == []
    for cited_names, path in re.findall(
        r"((?:`[\w.]+`(?:, | and )?)+) in `((?:scripts|rules)/[\w/]+\.(?:py|smk))`", text
    ):
        source = (ROOT / path).read_text(encoding="utf-8")
        for name in re.findall(r"`([\w.]+)`", cited_names):
            assert name.rpartition(".")[2] in source, f"{document.name}: {name} is not in {path}"


@pytest.mark.parametrize("document", ["README.md", "docs/method.md"])
def test_verdicts_mean_the_same_in_documents_and_on_pages(document: str):
    text = re.sub(r"[*`]", "", (ROOT / document).read_text(encoding="utf-8")).replace(" (equivalence_percent)", "")
    meanings = judgement.get_verdict_meanings(5).items()
    assert [word for word, meaning in meanings if not re.search(rf"{word}(:| \|) {re.escape(meaning)}", text)] == []


def test_sentences_that_the_readme_explains_are_those_of_the_pages():
    for effect in (names.describe_effect([1.24], 1.21, 1.29), names.describe_effect([1 / 2.3], 0.4, 0.5)):
        assert effect.text in README
    assert names.describe_effect([1.24], 1.21, 1.29).interval in README
    assert {*", ".join(words.MEANINGS).split(", ")} == {*comparisons.LOOKS}


def test_every_rule_of_the_method_has_a_test():
    assert sorted(rules.marked()) == sorted(rules.titles())


def test_every_rule_of_the_method_is_there_and_no_other_is_cited():
    assert list(rules.titles()) == list(range(1, 24))
    sources = [path for folder in ("scripts", "tests", "rules", "notebooks") for path in (ROOT / folder).rglob("*.*")]
    sources = [path for path in sources if path.suffix in (".py", ".smk", ".ipynb")]
    cited = {
        int(number)
        for path in sources
        for numbers in re.findall(r"METHOD ([\d, -]*\d)", path.read_text(encoding="utf-8"))
        for number in re.findall(r"\d+", numbers)
    }
    assert cited <= set(range(1, 24))


def edited(base: yaml.MappingNode, part: yaml.MappingNode) -> None:
    """Change and add the lines of `part` in `base`, as a reader does: a line is a whole entry."""
    for key, value in part.value:
        at = next((number for number, (known, _) in enumerate(base.value) if known.value == key.value), len(base.value))
        if at < len(base.value) and isinstance(value, yaml.MappingNode) and not value.flow_style:
            edited(base.value[at][1], value)
        else:
            base.value[at : at + 1] = [(key, value)]


@pytest.mark.parametrize("text", EXAMPLES)
def test_examples_of_configurations_are_valid(text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    values = yaml.compose((ROOT / "config/config.yaml").read_text(encoding="utf-8"))
    edited(values, yaml.compose(text))
    matrix.expand_all(configuration.resolve_config(yaml.safe_load(yaml.serialize(values)), []), [])


@pytest.mark.parametrize("text", blocks(DOCUMENTS[2], "yaml"), ids=lambda text: text.partition("\n")[0])
def test_examples_of_configurations_are_lines_that_change_and_a_run_of_its_own(text: str):
    default = (ROOT / "config/config.yaml").read_text(encoding="utf-8").splitlines()
    lines = text.splitlines()
    assert [line for line in lines if line in default and not line.endswith(":")] == []
    assert [line for line in lines if line.endswith(":") and line not in default] == []
    assert lines[0].startswith("run: ")


def test_the_citation_is_complete():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    required = {"cff-version": "1.2.0", "title": "storage-benchmarks", "type": "software", "license": "MIT"}
    assert required.items() <= citation.items()
    assert citation["message"]
    assert all(set(author) == {"name"} for author in citation["authors"])
    assert f'version = "{citation["version"]}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
