# The front door. Every target but help and clean sets up first (scripts/setup.sh; a moment when nothing is missing).
SHELL := bash
DEPS := $(abspath $(or $(SHARDMARK_DEPS),.deps))
ENV := . "$(DEPS)/env.sh" &&
JOBS ?= 2
# BUNDLE=FILE.tar (made by make bundle): set up from that file alone, without network and root.
BUNDLE ?=

.PHONY: help setup build test test-all bench speed peers gpu-check bundle format clean

help: ## show this
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: ## install what is missing: packages, LibTorch, a Python environment (BUNDLE=FILE.tar: from that file, offline)
	@$(if $(BUNDLE),JOBS=$(JOBS) scripts/bundle/use.sh "$(BUNDLE)",scripts/setup.sh)

build: setup ## build/shardmark, tests and benchmarks
	@$(ENV) cmake --preset release -DTorch_DIR="$$Torch_DIR" $$SHARDMARK_CMAKE_FLAGS > /dev/null
	@$(ENV) cmake --build --preset release -j $(JOBS)

test: build ## all tests but the long ones
	@$(ENV) ctest --test-dir build -LE slow -j 1 --output-on-failure

test-all: build ## all tests
	@$(ENV) ctest --test-dir build -j 1 --output-on-failure

bench: build ## train mlp, mlp-digits, mlp-wide and lm10m under every technique, and compare (minutes)
	@$(ENV) scripts/bench.sh

speed: build ## hold step times to what this machine allows, and measuring to its share; needs two free cores
	@$(ENV) "$$SHARDMARK_PYTHON" scripts/speed.py

peers: build ## beside PyTorch DDP, FSDP2 and DeepSpeed ZeRO, an hour (PEERS="--cells mlp:ddp -o FILE.md"); needs two free cores
	@$(ENV) "$$SHARDMARK_PYTHON" scripts/peers/measure.py $(PEERS)

gpu-check: ## check a machine with GPUs, at most 9 minutes (BUNDLE=FILE.tar: offline; GPU_CHECK="--out DIR", "--rehearse" without a GPU)
	@scripts/gpu_check.sh $(if $(BUNDLE),--bundle "$(BUNDLE)") $(GPU_CHECK)

bundle: ## pack what building without a network needs into one file, two minutes, 51 MB to download (BUNDLE_OUT=build/shardmark-bundle.tar); on Debian 12
	@$$(command -v "$(DEPS)/venv/bin/python" || command -v python3 || echo python3) scripts/bundle/pack.py \
	  -o "$(or $(BUNDLE_OUT),build/shardmark-bundle.tar)" --downloads "$(DEPS)/downloads"

format: setup ## lay all C++ and CUDA sources out by clang-format
	@$(ENV) "$$SHARDMARK_PYTHON" tests/style/house.py --format

clean: ## remove the build folders, keep what was downloaded
	rm -rf build build-*
