# The front door. Every target sets up first (scripts/setup.sh; seconds when nothing is missing).
SHELL := bash
DEPS := $(abspath $(or $(SHARDMARK_DEPS),.deps))
ENV := . "$(DEPS)/env.sh" &&
JOBS ?= 2

.PHONY: help setup build test test-all bench format clean

help: ## show this
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: ## install what is missing: packages, LibTorch, a Python environment
	@scripts/setup.sh

build: setup ## build/shardmark, tests and benchmarks
	@$(ENV) cmake --preset release -DTorch_DIR="$$Torch_DIR" > /dev/null
	@$(ENV) cmake --build --preset release -j $(JOBS)

test: build ## all tests but the long ones
	@$(ENV) ctest --test-dir build -LE slow -j 1 --output-on-failure

test-all: build ## all tests
	@$(ENV) ctest --test-dir build -j 1 --output-on-failure

bench: build ## train mlp and mlp-digits alone and under ddp on real data, and compare
	@$(ENV) scripts/bench.sh

format: ## clang-format all sources
	@command -v clang-format > /dev/null || { echo "format: no clang-format: Debian package clang-format" >&2; exit 5; }
	@git ls-files '*.cpp' '*.hpp' '*.cu' '*.cuh' | xargs clang-format -i

clean: ## remove the build folders, keep what was downloaded
	rm -rf build build-*
