# `make check` is all that a contributor needs: it does what CI does.
.PHONY: install dist check lint types docs test coverage nightly format

check: lint types test

# This checkout, editable. torch by its exact version, and first: asked for in another way it brings
# gigabytes for GPUs.
install:
	python -m pip install --constraint constraints.txt "$$(grep '^torch==' constraints.txt)"
	python -m pip install --constraint constraints.txt --editable ".[dev]"

# The wheel and the source distribution, in dist/.
dist:
	rm -rf dist
	python -m build --outdir dist .

lint:
	ruff check .
	ruff format --check .
	lint-imports

types:
	mypy

# The site, without a warning, as tests/docs/test_site.py builds it too.
docs:
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

# Two workers: many tests start programs of their own. A file's tests stay together, and what they share
# is made once. Containers often forbid bytecode: every one of those programs would compile fedeas.
test coverage: export PYTHONDONTWRITEBYTECODE =
test:
	pytest -n 2 --dist loadfile

# All tests with coverage (coverage.xml, htmlcov/); programs that tests start are not measured. The
# threshold is for the planner, which reaches 95 % with the tests of tests/core.txt alone.
CORE = planning/* planning/policies/* counts/* partition/*
comma = ,
space = $() $()
coverage:
	pytest -n 2 --dist loadfile --cov --cov-report=xml --cov-report=html
	coverage report --fail-under=95 \
		--include="$(subst $(space),$(comma),$(CORE:%=*/fedeas/%.py))"

# An hour and more: slow tests, a federation on this machine, every benchmark once.
nightly:
	python tools/nightly.py

format:
	ruff check --fix .
	ruff format .
