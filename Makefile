# Sluice: build, demonstrate, test, measure. `make help` lists the targets.

SWIFT ?= swift
# Extra arguments, e.g. `make test ARGS='--filter GatewayTests'` or `make demo ARGS='--jobs 100000'`.
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help build demo test bench bench-connection format lint clean dependencies test-dependencies toolchain

help:
	@echo 'make demo     builds, starts embedded Kafka, an APNs simulator and a worker, and pushes a load through them'
	@echo 'make test     builds and runs all tests'
	@echo 'make build    release build: .build/release/sluice'
	@echo 'make bench    measurements of Benchmarks/README.md'
	@echo 'make bench-connection  the connection layer: each figure with its bound, under ten minutes'
	@echo 'make format   formats the sources in place'
	@echo 'make lint     checks the format'
	@echo 'make clean    removes the build directory'
	@echo "ARGS='...' is handed to what the target runs."

# The demo and the tests use no network beyond loopback; only dependencies and packages are fetched.
demo: build
	@.build/release/sluice demo $(ARGS)

build: toolchain dependencies
	@$(SWIFT) build -c release --product sluice

# Tests that run whole workers block the threads that the others' timing rests on, so they run by themselves.
WHOLE_WORKERS = ^(GatewayTests|ProcessTests)

test: toolchain test-dependencies
ifeq ($(strip $(ARGS)),)
	@$(SWIFT) build --build-tests
	@$(SWIFT) test --skip-build --skip '$(WHOLE_WORKERS)'
	@$(SWIFT) test --skip-build --filter '$(WHOLE_WORKERS)'
else
	@$(SWIFT) test $(ARGS)
endif

bench: toolchain test-dependencies
	@$(SWIFT) build -c release
	@Benchmarks/run $(ARGS)

bench-connection: toolchain test-dependencies
	@$(SWIFT) build -c release
	@Benchmarks/connection $(ARGS)

format: toolchain
	@$(SWIFT) format --in-place --parallel --recursive Sources Tests Benchmarks Package.swift

lint: toolchain
	@$(SWIFT) format lint --strict --parallel --recursive Sources Tests Benchmarks Package.swift

clean:
	@$(SWIFT) package clean
	@rm -rf .build

dependencies:
	@Deploy/install-dependencies.sh

test-dependencies:
	@Deploy/install-dependencies.sh --test

toolchain:
	@Deploy/check-toolchain.sh $(SWIFT)
