# Thin aliases of the uv commands in CONTRIBUTING.md.
UV := scripts/uv
DOCS := README.md CONTRIBUTING.md $(wildcard docs/*.md)

.PHONY: setup demo test test-pythons clients soak fuzz lint docs pictures demo-model

setup:
	$(UV) sync

demo: setup
	scripts/demo

test: setup
	$(UV) run pytest -n auto --dist loadfile

# Real programs against the server, each in one version. Needs node, and npm's registry once.
clients: setup
	cd tests/clients && npm install --no-package-lock --no-audit --no-fund --loglevel=error
	$(UV) run --group clients pytest -v tests/clients/with_*.py

# The tests on each supported Python that is installed.
test-pythons:
	scripts/test-pythons

soak: setup
	$(UV) run python -m tests.coldstore.machine --steps 1000000 --out build/soak.json

fuzz: setup
	$(UV) run python -m tests.coldstore.fuzz --mutations 100000 --out build/fuzz.json

lint: setup
	$(UV) run ruff check .
	$(UV) run ruff format --check .
	$(UV) run mypy
	$(UV) run cog --check -I . $(DOCS)

docs: setup
	$(UV) run cog -r -I . $(DOCS)

# The pictures of docs/, taken in Chromium.
pictures: setup
	$(UV) run python -m tools.pictures

demo-model:
	$(UV) run --group train python -m tools.demo_model.build --out build/demo-model
