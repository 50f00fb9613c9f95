# Two commands set up everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
JOBS   ?= 2

.PHONY: demo test check lint types layers tests tests-all docs site-check notebooks dist extras compat zoo bench papers clean

demo: $(VENV)/.ready       ## tune models on a data set that scikit-learn ships
	$(BIN)/onefit demo

test: check                ## everything that has to hold

check: lint types layers tests   ## exactly what CI runs

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
types: $(VENV)/.ready-dev
	$(BIN)/mypy
layers: $(VENV)/.ready-dev
	$(BIN)/lint-imports
tests: $(VENV)/.ready-dev
	PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m 'not slow' $(PYTEST_ARGS)

tests-all: $(VENV)/.ready-dev  ## every case of every test, for an hour
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 $(PYTEST_ARGS)

zoo: $(VENV)/.ready-dev      ## 2,100 problems of every kind beside their refits, for an hour or two
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m zoo $(ZOO_ARGS)

bench: $(VENV)-bench/.ready  ## us beside the peers, one table
	$(VENV)-bench/bin/python benchmarks/run.py $(BENCH_ARGS)

# The peers pin old versions of what we use, so they get an environment of their own; PyTorch comes first,
# lest another build of it be pulled.  One that has no wheel for this Python is left out of the table.
$(VENV)-bench/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-bench/bin/python -m pip install --quiet --editable .
	-$(VENV)-bench/bin/python -m pip install --quiet adelie
	-$(VENV)-bench/bin/python -m pip install --quiet 'torch==2.13.0'
	-$(VENV)-bench/bin/python -m pip install --quiet randalo 'torch-linops<0.2' cvxpy
	touch $@

papers: $(VENV)-papers/.ready  ## the figures and tables of the papers, anew
	$(VENV)-papers/bin/python papers/render.py $(PAPERS_ARGS)

$(VENV)-papers/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)-papers
	$(VENV)-papers/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-papers/bin/python -m pip install --quiet 'torch==2.13.0'
	$(VENV)-papers/bin/python -m pip install --quiet --editable '.[cli,cvxpy]' optuna
	touch $@

docs: $(VENV)-docs/.ready  ## the site, with every example run; a warning is an error
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(VENV)-docs/bin/sphinx-build -W --keep-going -j $(JOBS) -d docs/_build/doctrees docs docs/_build/html $(DOCS_ARGS)

site-check: $(VENV)-docs/.ready  ## links of the built site, and the site in a browser
	$(VENV)-docs/bin/python -m pytest -q -rs -c /dev/null -p no:cacheprovider --rootdir docs docs/check_site.py

notebooks: $(VENV)-docs/.ready  ## the tutorials as notebooks, executed
	$(VENV)-docs/bin/python docs/notebooks.py

$(VENV)-docs/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-docs/bin/python -m pip install --quiet 'torch==2.13.0'
	$(VENV)-docs/bin/python -m pip install --quiet --editable '.[cli,cvxpy]' --group docs pytest
	touch $@

dist: $(VENV)/bin/python   ## wheel and sdist, checked, and the wheel tried in an empty environment
	BIN=$(BIN) .ci/dist

extras:                    ## each extra alone in an empty environment
	.ci/extras

compat:                    ## oldest and latest dependencies, on every Python that is here
	.ci/compat

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "onefit needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.ready: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[cli]'
	touch $@

# PyTorch comes first, lest another build of it be pulled.
$(VENV)/.ready-dev: $(VENV)/.ready pyproject.toml
	$(BIN)/python -m pip install --quiet 'torch==2.13.0'
	$(BIN)/python -m pip install --quiet --editable '.[cli,cvxpy]' --group dev
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-bench $(VENV)-papers $(VENV)-docs $(VENV)-compat build dist docs/_build docs/gallery docs/tutorials/generated docs/api/generated .mypy_cache .ruff_cache .pytest_cache
