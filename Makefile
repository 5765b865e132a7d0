# The two commands: `make run` and `make test`. What else there is to ask is ./sbench --help; this is for developers.
# It would have every Python look for its own library elsewhere.
unexport PYTHONHOME
COMPILE = .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-header --upgrade
# For conda: what a lock holds for one platform, in the form and at the end of an environment file.
PINS = .venv/bin/uv pip compile --quiet --python-platform x86_64-manylinux_2_28 --python-version 3.11 --no-annotate --no-header

.DEFAULT_GOAL := help
.PHONY: help setup run quick test wheel bench mutants lock format

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10
	@echo "Options, and everything else: ./sbench --help"

setup: ## install what is missing: system packages, .venv
	@scripts/setup.sh

run: setup ## measure and report: reports/<run>/index.html
	@./sbench run

quick: setup ## which page buffer and layout, over S3: an answer in 2 to 4 minutes, no library compiled
	@./sbench run --quick

test: setup ## lint, format, types, and the tests on real servers that are not late; FAST=1: those that start no process
	@.venv/bin/ruff check . && .venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/snakefmt --check Snakefile rules
	@PYTHONPATH=scripts .venv/bin/lint-imports --no-cache --no-logo && .venv/bin/deptry .
	@.venv/bin/python -m pytest --numprocesses=logical --dist=worksteal -m "not late" $(if $(FAST),--fast,--junitxml=.pytest_cache/tests.xml)

wheel: setup ## build the package with the servers of sbench count: dist/storage_benchmarks-….whl
	@.venv/bin/python -sE scripts/build_servers.py --need versitygw toxiproxy --out build/servers.json
	@.venv/bin/uv build --quiet --wheel --config-setting=--build-option=--servers=build/servers.json

bench: setup ## measure false verdicts, overhead, scale and size of the project, beside goals
	@.venv/bin/python -sE -m tests.bench

mutants: setup ## change what judges in many small ways, for an hour or more, and print each change that no test notices
	@.venv/bin/python -sE -m tests.bench.mutants

lock: setup ## resolve the .in files again; changed locks rebuild the libraries under test
	@$(COMPILE) --output-file envs/workflow.lock envs/package.in envs/verdicts.in envs/report.in envs/workflow.in \
		envs/snakemake.in envs/mpi.in envs/fio.in envs/tools.in
	@for name in measure build go node clients; do $(COMPILE) --output-file envs/$$name.lock envs/$$name.in; done
	@for name in yt arrays; do $(COMPILE) --constraints envs/measure.lock --output-file envs/$$name.lock envs/$$name.in; done
	@sed -n 's/^\(zarr==.*[0-9]'\''*\) .*/\1/p' envs/arrays.lock >envs/.zarr && echo h5py | $(COMPILE) --excludes /dev/stdin \
		--constraints envs/measure.lock --constraints envs/.zarr --output-file envs/readers.lock envs/readers.in; rm envs/.zarr
	@echo h5py | $(subst 3.11,3.12,$(COMPILE)) --excludes /dev/stdin --constraints envs/measure.lock \
		--output-file envs/containers.lock envs/containers.in
	@for name in envs/claims/*.in; do version=$$(grep -q 'Python 3.12' $$name && echo 3.12 || echo 3.11); \
		$(subst 3.11,$$version,$(COMPILE)) --constraints envs/measure.lock --output-file $${name%.in}.lock $$name; done
	@for name in envs/h5py-*.in; do $(COMPILE) --no-deps --output-file $${name%.in}.lock $$name; done
	@for name in workflow mpi fio; do sed -i '/^  - pip:$$/q' envs/$$name.yaml; \
		[ $$name = workflow ] && more="envs/package.in envs/verdicts.in envs/report.in" || more=; \
		$(PINS) -c envs/workflow.lock envs/$$name.in $$more | sed 's/^/      - /' >> envs/$$name.yaml; done
	@for name in envs/hdf5-*.yaml; do sed -i '/^  - h5py$$/q' $$name; \
		$(PINS) -c envs/measure.lock --no-deps envs/measure.in | sed 's/^dask=/dask-core=/; s/==/=/; s/^/  - /' >> $$name; done

format: setup ## format all code
	@.venv/bin/ruff check --fix . ; .venv/bin/ruff format . ; .venv/bin/snakefmt Snakefile rules
