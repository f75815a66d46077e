# What a newcomer, a developer and CI do here. Needs nothing but make and Python 3.11 or newer.

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: up install test check chaos shots audit lock clean

up: .venv/.run
	@$(BIN)/python manage.py up

install: .venv/.run

test: .venv/.dev
	@$(BIN)/python -m tests.run $(TEST_ARGS)

check: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.test_architecture
	$(BIN)/python -W error manage.py makemigrations --check --dry-run
	OUTBOX_URL=https://outbox.example.com OUTBOX_SECRET_KEY_FILE=tests/data/secret-key \
		$(BIN)/python manage.py check --deploy --fail-level WARNING
	@if [ -d templates ]; then echo djlint --check templates; $(BIN)/djlint --quiet --check templates; fi

# Harms a running installation for a while, and judges it by its providers' journals.
chaos: .venv/.dev
	$(BIN)/python -m tests.chaos $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

# The pictures of README, made anew from the demonstration; they need a Chromium, and the font Inter.
shots: .venv/.dev
	$(BIN)/python -m tests.shots

# Asks for the known weaknesses of every locked package; needs the internet, so no check does it.
audit: .venv/.dev
	$(BIN)/pip-audit --strict --require-hashes --disable-pip --requirement requirements-dev.txt

LOCK := CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --upgrade --generate-hashes \
	--strip-extras --allow-unsafe --annotation-style=line \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links

lock: .venv/.dev
	$(LOCK) --output-file=requirements.txt pyproject.toml
	$(LOCK) --output-file=requirements-dev.txt --extra=dev --constraint=requirements.txt pyproject.toml

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache

.venv/bin/python:
	@sh .ci/venv.sh "$(PYTHON)"

.venv/.run: requirements.txt | .venv/bin/python
	@echo "Installing the packages of $< into .venv …"
	@$(PIP) install --require-hashes -r $<
	@touch $@

.venv/.dev: requirements-dev.txt | .venv/bin/python
	@echo "Installing the packages of $< into .venv …"
	@$(PIP) install --require-hashes -r $<
	@touch $@ .venv/.run
