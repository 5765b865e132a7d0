# The two commands: `make run` and `make test`. `make help` lists the rest.
# What a user says reaches the programs in the environment, each value as it is: make would expand a $ in it, and a recipe
# that held its text would have the shell read it.
$(foreach name,CONFIG RUN STUDY ONLY CORES YES CELL FROM LIMIT DIR PAUSE PYTHON RAW \
	A B PAIRED FAIL_ON KEEP BY FILES OUT ACCESS DATASETS LATENCY RATE STORE SCRATCH REPEATS LIBRARY TO METRIC CLONE QUICK COLUMNS SEED POINTS POINT,\
	$(if $(filter --,$(value $(name))),$(error $(name) has the word --, which is none))\
	$(if $(value $(name)),$(eval override export $(name) := $$(value $(name)))))
# It would have every Python look for its own library elsewhere.
unexport PYTHONHOME
DEFAULT = config/config.yaml
CONFIGFILE = --configfile="$${CONFIG:-$(DEFAULT)}"
LAUNCH = .venv/bin/python -sE -m scripts.launch $(CONFIGFILE) $${CORES:+--cores="$$CORES"} \
	--run="$$RUN" --study="$$STUDY" --only="$$ONLY" $${YES:+--yes}

COMPILE = .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-header --upgrade
# For conda: what a lock holds for one platform, in the form and at the end of an environment file.
PINS = .venv/bin/uv pip compile --quiet --python-platform x86_64-manylinux_2_28 --python-version 3.11 --no-annotate --no-header

.DEFAULT_GOAL := help
.PHONY: help setup run quick import published audit compare baseline archive report cite fit look advise bisect check plan again export pack test faults bench mutants lock format

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10
	@echo "Variables: CONFIG=config/ec2.yaml RUN=tuesday STUDY=shots ONLY='library=hdf5-2.0.0 workers=1,2' CORES=2 YES=1 CELL=…"
	@echo "The same tomorrow: make run RUN=tuesday measures the same configuration under another name, next to the first run;"
	@echo "make again CELL=… measures cells of a run again and keeps their earlier records."

setup: ## install what is missing: system packages, .venv
	@scripts/setup.sh

run: setup ## measure and report: reports/<run>/index.html
	@$(LAUNCH)

quick: DEFAULT = config/quick.yaml
quick: setup ## which page buffer and layout, over S3: an answer in 2 to 4 minutes, no library compiled
	@$(LAUNCH)

import: DEFAULT = config/import.yaml
import: setup ## report fio's results from elsewhere: FROM='tarballs, folders or JSON files'
	@$(LAUNCH) --imports="$$FROM"

published: setup ## regenerate and audit the published studies: reports/published/index.html, RAW=<folder of their data>; PARTIAL=1 of what is here
	@.venv/bin/snakemake published --cores "$${CORES:-all}" --config published_partial=$$([ "$$PARTIAL" ] && echo True || echo False) $${RAW:+published_data="$$RAW"}

audit: setup ## test the rules of docs/method.md on CSVs with the columns of a published study, or named ones: FILES='a.csv b.csv' COLUMNS='Latency=time_s store=arm'
	@.venv/bin/python -sE -m scripts.published.audit --study="$$STUDY" --columns="$$COLUMNS" "$$FILES"

compare: setup ## compare runs of results/, archives or baselines: A='mon tue' B=wed FAIL_ON='slower > 10 %' PAIRED=1
	@.venv/bin/python -sE -m scripts.published.compare --a="$$A" --b="$$B" $${PAIRED:+--paired} --fail-on="$$FAIL_ON"

baseline: setup ## keep what runs measured in a file that can be committed: A='mon tue wed thu' KEEP=baseline.json
	@.venv/bin/python -sE -m scripts.published.compare --a="$$A" $${KEEP:+--keep="$$KEEP"}

archive: setup ## pack a run into one file, with the hash of each record: results/<run>/<run>-<hash>.tar.xz
	@.venv/bin/python -sE -m scripts.published.archive $(CONFIGFILE) --run="$$RUN"

report: setup ## make the pages of an archive, offline: FROM=tuesday-1a2b3c4d5e.tar.xz
	@.venv/bin/python -sE -m scripts.published.archive --from="$$FROM" --run="$$RUN"

cite: setup ## print how to cite a run, or an archive (FROM=…): BY='Ada Lovelace'
	@.venv/bin/python -sE -m scripts.published.cite $(CONFIGFILE) --run="$$RUN" $${FROM:+--from="$$FROM"} --by="$$BY"

fit: setup ## say in one word whether a volume keeps a limit: LIMIT=etcd DIR=/var/lib/etcd PAUSE=180, or QUICK=1
	@.venv/bin/python -sE -m scripts.studies.volumes.fit --limit="$$LIMIT" --directory="$$DIR" $${PAUSE:+--pause="$$PAUSE"} \
		$${QUICK:+--quick}

look: setup ## look into HDF5 files in seconds, and list what they hold and what that means: FILES='data/*.h5' or 's3://bucket/prefix/*.h5'
	@.venv/bin/python -sE -m scripts.studies.shots.look --files="$$FILES" --access="$$ACCESS" --datasets="$$DATASETS"

advise: setup ## find the fastest way to read your files, and measure it: FILES='data/*.h5' ACCESS='files [0:100, ...]' LATENCY=20 RATE=50
	@.venv/bin/python -sE -m scripts.studies.shots.advise --files="$$FILES" --access="$$ACCESS" --datasets="$$DATASETS" --scratch="$$SCRATCH" \
		--store="$$STORE" $${LATENCY:+--latency="$$LATENCY"} $${RATE:+--rate="$$RATE"} $${REPEATS:+--repeats="$$REPEATS"} $${RUN:+--run="$$RUN"}

bisect: setup ## say which release, or commit of a clone, changed requests, bytes or seconds: LIBRARY=s3fs FROM=2024.5.0 TO=2025.2.0 METRIC=bytes
	@.venv/bin/python -sE -m scripts.studies.shots.bisect --library="$$LIBRARY" --from="$$FROM" --to="$$TO" \
		--metric="$$METRIC" --clone="$$CLONE" --files="$$FILES" --run="$$RUN" $${YES:+--yes}

check: setup ## look before building: tools, credentials, buckets, disk, page cache
	@.venv/bin/python -sE -m scripts.preflight $(CONFIGFILE)

plan: setup ## list the cells, what is left out and why, and what it costs
	@$(LAUNCH) --plan

again: setup ## measure again on purpose: CELL=<beginning of a cell's name>
	@test -n "$$CELL" || { echo "Say which: make again CELL=<beginning of a name that make plan lists>"; exit 2; }
	@$(LAUNCH) --again="$$CELL"

export: setup ## write every observation of a run as one long table, and the tables of its pages for papers: results/<run>/export/
	@.venv/bin/python -sE -m scripts.export $(CONFIGFILE) --run="$$RUN" --tables

pack: setup ## write one archive that runs where there is no network, compiler, root or git: CONFIG=… OUT=<archive>
	@.venv/bin/python -sE -m scripts.pack $(CONFIGFILE) --out="$$OUT"

test: setup ## lint, format, and all tests on real servers; FAST=1: those that start no process, in 90 seconds
	@.venv/bin/ruff check . && .venv/bin/ruff format --check .
	@.venv/bin/snakefmt --check Snakefile rules
	@.venv/bin/lint-imports --no-cache --no-logo && .venv/bin/deptry .
	@.venv/bin/python -m pytest --numprocesses=logical --dist=worksteal $(if $(FAST),--fast,--junitxml=.pytest_cache/tests.xml)

faults: setup ## fail 100 calls of write, open, fork … in a small run; nothing may be lost: SEED=… POINTS=… POINT='<a point that it printed>'
	@.venv/bin/python -sE -m tests.inject --seed="$$SEED" $${POINTS:+--points="$$POINTS"} $${POINT:+--point="$$POINT"}

bench: setup ## measure the project's own costs and print ratios, its size and the time of its tests
	@.venv/bin/python -sE -m scripts.bench

mutants: setup ## change what judges in many small ways, for an hour or more, and print each change that no test notices
	@.venv/bin/python -sE -m scripts.mutants

lock: setup ## resolve the .in files again; changed locks rebuild the libraries under test
	@$(COMPILE) --output-file envs/workflow.lock envs/workflow.in envs/mpi.in envs/fio.in envs/tools.in
	@for name in measure build go node mutants; do $(COMPILE) --output-file envs/$$name.lock envs/$$name.in; done
	@for name in yt arrays; do $(COMPILE) --constraints envs/measure.lock --output-file envs/$$name.lock envs/$$name.in; done
	@echo h5py | $(COMPILE) --excludes /dev/stdin --constraints envs/measure.lock --output-file envs/readers.lock envs/readers.in
	@for name in envs/h5py-*.in; do $(COMPILE) --no-deps --output-file $${name%.in}.lock $$name; done
	@for name in workflow mpi fio; do sed -i '/^  - pip:$$/q' envs/$$name.yaml; \
		$(PINS) -c envs/workflow.lock envs/$$name.in | sed 's/^/      - /' >> envs/$$name.yaml; done
	@for name in envs/hdf5-*.yaml; do sed -i '/^  - h5py$$/q' $$name; \
		$(PINS) -c envs/measure.lock --no-deps envs/measure.in | sed 's/^dask=/dask-core=/; s/==/=/; s/^/  - /' >> $$name; done

format: setup ## format all code
	@.venv/bin/ruff check --fix . ; .venv/bin/ruff format . ; .venv/bin/snakefmt Snakefile rules
