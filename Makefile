# One command each. `make demo` and `make test` need nothing but python3, make and a network.
VENV ?= .venv
BIN := $(VENV)/bin
INPUTS := pyproject.toml constraints.txt scripts/bootstrap

.PHONY: help demo example test lint unit test-kernel test-root test-pythons test-vm bench escape-report fuzz soak schema wheel install uninstall lock clean

help:  ## Show these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(VENV)/.installed  ## Run commands under a policy and see what is refused, and why
	@$(BIN)/democrai-osguard demo

example: $(VENV)/.installed-dev  ## Run a small host through denials, approvals, a resume and a child process
	@$(BIN)/python examples/host.py

test: $(VENV)/.installed-dev lint  ## Install what the tests need, then run all of them
	@scripts/test-packages
	@echo "→ running the tests"
	@VENV=$(VENV) scripts/test

lint: $(VENV)/.installed-dev  ## Check style and types
	@echo "→ checking style and types"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy

unit: $(VENV)/.installed-dev  ## Run the tests that need nothing of the host
	@$(BIN)/pytest tests/unit

test-kernel: $(VENV)/.installed-dev  ## Run the tests against this kernel
	@$(BIN)/pytest tests/kernel

test-root: $(VENV)/.installed-dev  ## Run the tests that need root
	@$(BIN)/pytest tests/root

test-pythons: $(VENV)/.installed-dev  ## Run the unit tests on every other Python that is here
	@scripts/test-pythons

test-vm: $(VENV)/.installed-dev  ## Run it on real kernels under QEMU; SUITE=bookworm for one of them
	@scripts/test-vm $(SUITE)

bench: $(VENV)/.installed-dev  ## Measure, side by side; writes benchmarks/results/
	@$(BIN)/python -m benchmarks.run
	@echo "→ the guard"
	@$(BIN)/python benchmarks/guard.py
	@echo "→ the broker"
	@$(BIN)/python benchmarks/broker.py
	@if [ "$$(id -u)" = 0 ]; then echo "→ egress"; $(BIN)/python benchmarks/egress.py; \
	 else echo "→ egress is measured as root only"; fi

escape-report: $(VENV)/.installed-dev  ## As root: try every way out, here and in other sandboxes; writes docs/escapes.md
	@cp build/vm/escapes/*.json docs/escapes/ 2>/dev/null && echo "→ with what make test-vm saw" || true
	@$(BIN)/python tests/escapes/report.py docs/escapes docs/escapes.md

fuzz: $(VENV)/.installed-dev  ## Feed every reader with nonsense: make fuzz MINUTES=10
	@$(BIN)/python -c 'import atheris' 2>/dev/null || { echo "→ installing atheris"; \
	 $(BIN)/pip install --quiet --retries 1 --timeout 15 --constraint constraints.txt \
	  --editable .[fuzz] 2>/dev/null; } || echo "→ without atheris: Hypothesis alone"
	@$(BIN)/python tests/fuzz/run.py $(or $(MINUTES),10)

soak: $(VENV)/.installed-dev  ## As root: everything at once, killed at any moment: make soak MINUTES=60
	@$(BIN)/python tests/soak/run.py $(or $(MINUTES),5)

schema: $(VENV)/.installed-dev  ## Write the manifest's JSON Schema anew
	@$(BIN)/python -m democrai_osguard.manifest_schema > democrai_osguard/manifest.schema.json

wheel: $(VENV)/.installed-dev  ## Build the wheel and the source archive into dist/
	@echo "→ building"
	@$(BIN)/python -m build --outdir dist . >/dev/null && ls dist

install:  ## As root: programs into /opt/democrai-osguard, the helper's units, both sockets on
	@scripts/install

uninstall:  ## As root: remove them again
	@scripts/uninstall

lock: $(VENV)/.installed-dev  ## Write what is installed now into constraints.txt
	@scripts/lock $(BIN)/pip

clean:  ## Remove what these targets made
	rm -rf $(VENV) $(VENV)-* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.installed: $(INPUTS)
	@scripts/bootstrap $(VENV)
	@touch $@

$(VENV)/.installed-dev: $(INPUTS)
	@scripts/bootstrap $(VENV) dev
	@touch $@ $(VENV)/.installed
