# Every target makes the virtual environment it needs. On a fresh machine: `make demo`, `make test`.
PYTHON ?= python3
BIN := .venv/bin

# The tests keep to one thread per worker; real data is read from the folder that TULLE_DATA names.
export OMP_NUM_THREADS ?= 1
# Byte code is kept: tests start some hundred interpreters, and each would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-extras test-r test-all audit local published mutants lint format bench docs gallery lock sbom dist container pictures clean

demo: .venv/extra-plot
	OMP_NUM_THREADS=2 $(BIN)/python examples/demo.py

test: .venv/extra-test .venv/extra-docs
	$(BIN)/python -m pytest -n 2 --dist worksteal

# A real browser, a Dask cluster of a few processes, clients over gRPC and Flower, networks, ONNX files, every command of
# the README, the tutorial and a session in a fresh clone, the notebooks of the gallery, the wheel in environments of its
# own, and the R package.
test-extras: .venv/extra-test .venv/extra-docs .venv/extra-build .venv/extra-browser .venv/extra-dask .venv/extra-federated .venv/extra-flower .venv/extra-onnx .venv/extra-torch .venv/extra-gallery
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder tests/clone tests/browser tests/cluster
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/federation tests/cli/test_exit_codes.py tests/cli/test_federated_command.py tests/cli/test_export_command.py tests/estimators/test_onnx_export.py tests/r

# The R package: build, check and its own tests. Needs R with the packages jsonlite and testthat.
test-r: .venv/extra-test
	TULLE_R=required $(BIN)/python -m pytest tests/r

# Everything that can be checked, in about 40 minutes on two cores. Without TULLE_DATA, tables on real data are left out.
test-all: lint test test-extras mutants
	$(BIN)/tulle reproduce all --fast -o build/reproduced

audit: .venv/extra-plot
	$(BIN)/python examples/audit_tulle.py

# 10,000 users who trust nobody answer a server over HTTP.
local: .venv/extra-plot
	$(BIN)/python examples/local_study.py

# What the printed noise of the papers on batches really proves.
published: .venv/extra-plot
	$(BIN)/python examples/published_noise.py

mutants: .venv/extra-test .venv/extra-dask .venv/extra-federated .venv/extra-flower .venv/extra-onnx .venv/extra-torch
	$(BIN)/python tests/mutants.py $(PLANT)

lint: .venv/extra-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/extra-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/extra-test
	$(BIN)/python benchmarks/run.py

# Without the variable the theme announces its end of life in every build.
docs: export NO_MKDOCS_2_WARNING = 1
docs: .venv/extra-docs
	$(BIN)/mkdocs build --strict --quiet --site-dir build/site

# Executes the notebooks in docs/gallery again, and stores their outputs; fails if a cell raises or warns.
gallery: .venv/extra-gallery
	$(BIN)/python docs/execute_notebooks.py

# The versions and hashes of all dependencies, for all platforms, and the bill of materials that follows from them.
lock: .venv/extra-lock
	$(BIN)/python deployment/make_lock.py
	$(BIN)/python deployment/make_sbom.py

sbom: .venv/bin/python
	$(BIN)/python deployment/make_sbom.py

# The wheel and the source archive, in dist/.
dist: .venv/extra-build
	rm -rf dist
	$(BIN)/python -m build --quiet
	$(BIN)/python -m twine check --strict dist/*

# Needs an engine such as podman, and the base image. BASE=IMAGE@sha256:... pins that; LOCK=federated adds that extra.
CONTAINER ?= podman
container:
	$(CONTAINER) build --file Containerfile $(if $(BASE),--build-arg BASE=$(BASE)) $(if $(LOCK),--build-arg LOCK=$(LOCK)) --tag tulle .

# Redraws the pictures in docs/pictures; those on real data need TULLE_DATA.
pictures: .venv/extra-docs .venv/extra-test .venv/extra-browser
	OMP_NUM_THREADS=2 $(BIN)/python docs/pictures/draw.py
	$(BIN)/python docs/pictures/headline.py
	$(BIN)/python docs/pictures/compare.py
	$(BIN)/python docs/pictures/lasso.py
	$(BIN)/python docs/pictures/stochastic.py
	$(BIN)/python docs/pictures/transfer.py
	$(BIN)/python docs/pictures/support_swap.py
	$(BIN)/python docs/pictures/local.py
	$(BIN)/python docs/pictures/report_page.py
	$(BIN)/python docs/pictures/decision_chart.py
	$(BIN)/python docs/pictures/rows_needed.py
	$(BIN)/python docs/pictures/growth.py
	$(BIN)/python docs/pictures/federated_mnist.py
	$(BIN)/python docs/pictures/federated_trust.py
	$(BIN)/python docs/pictures/masked_accuracy.py
	$(BIN)/python docs/pictures/architecture.py
	$(BIN)/python docs/pictures/weights.py

.venv/bin/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/extra-%: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable ".[$*]"
	@touch $@

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
