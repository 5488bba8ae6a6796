# Thin aliases of the uv commands in the README.
UV := scripts/uv

.PHONY: setup demo test test-pythons soak lint docs demo-model

setup:
	$(UV) sync

demo: setup
	scripts/demo

test: setup
	$(UV) run pytest -n auto --dist loadfile

# The tests on each supported Python that is installed.
test-pythons:
	scripts/test-pythons

soak: setup
	$(UV) run python -m tests.coldstore.machine --steps 1000000 --out build/soak.json

lint: setup
	$(UV) run ruff check .
	$(UV) run ruff format --check .
	$(UV) run mypy
	$(UV) run cog --check README.md

docs: setup
	$(UV) run cog -r README.md

demo-model:
	$(UV) run --group train python -m tools.demo_model.build --out build/demo-model
