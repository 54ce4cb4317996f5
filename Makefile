# Sluice: build, demonstrate, test, measure. `make help` lists the targets.

SWIFT ?= swift
# Extra arguments, e.g. `make test ARGS='--filter GatewayTests'` or `make demo ARGS='--jobs 100000'`.
ARGS ?=
# `make install` copies BINARY to DESTDIR/PREFIX/bin.
PREFIX ?= /usr/local
DESTDIR ?=
BINARY ?= .build/release/sluice

.DEFAULT_GOAL := help
.PHONY: help build install deb image sbom demo test bench bench-connection bench-core bench-store bench-simulator bench-memory bench-neighbour soak fuzz fuzz-merge fuzz-build simulate simulate-mutations simulate-mechanical chaos check-deploy format lint clean dependencies test-dependencies toolchain

help:
	@echo 'make demo     builds, starts an embedded Kafka, an APNs simulator and a worker, and pushes a load through them'
	@echo 'make test     builds and runs all tests'
	@echo 'make build    release build: .build/release/sluice'
	@echo 'make install  copies it to /usr/local/bin, or to DESTDIR/PREFIX/bin'
	@echo 'make deb      Debian package with the Swift runtime linked statically: .build/debian'
	@echo 'make image    image from the package, by buildah: .build/image; make sbom prints its bill of materials'
	@echo 'make bench    measurements of Benchmarks/README.md'
	@echo 'make bench-connection  the connection layer: each figure with its bound, a quarter of an hour'
	@echo 'make bench-core  the delivery machine and its tables: each figure with its bound, about two minutes'
	@echo 'make bench-store  the retry store with ten million pushes: each figure with its bound; the longest of all'
	@echo 'make bench-simulator  the device simulator: memory, pushes a second, the page in Chromium; about three minutes'
	@echo 'make bench-memory  the worst resident memory of a worker under hostile records; about ten minutes'
	@echo 'make bench-neighbour  an app beside another one in trouble, on one worker; about half an hour'
	@echo 'make soak     80 % of the capacity under faults of APNs, audited at the end: MINUTES=60'
	@echo 'make fuzz     libFuzzer on the HTTP/2 client, until it finds a fault or is stopped'
	@echo 'make simulate  the workers that ship in worlds full of faults: SEEDS=1000 EVENTS=300 (records of each seed) FIRST=1 JOBS=2'
	@echo 'make simulate-mutations  deliberate mistakes, each of which the simulation or the unit tests must catch'
	@echo 'make simulate-mechanical  a sample of mechanical mistakes in the workers, and those that nothing notices'
	@echo 'make chaos    workers on real brokers under faults, with an auditor: FAULTS=60 SECONDS=900 SEED=… (see Tests/README.md)'
	@echo 'make check-deploy  tries each artefact of Deploy with its own tool: passed, failed, left out and why; ARGS=NAME for one'
	@echo 'make format   formats the sources in place'
	@echo 'make lint     checks the format'
	@echo 'make clean    removes the build directory'
	@echo "ARGS='...' is passed to the target's program."

# Demo and tests use no network beyond loopback. Only dependencies and packages are fetched.
demo: build
	@.build/release/sluice demo $(ARGS)

# First digits of the commit, with + when files differ from it; empty outside of a git clone. Read by Package.swift.
COMMIT = $(shell git rev-parse --short=12 HEAD 2>/dev/null && { git diff --quiet HEAD || echo +; })

build: toolchain dependencies
	@SLUICE_COMMIT='$(subst $() ,,$(COMMIT))' $(SWIFT) build -c release --product sluice

# An existing build is installed as it is, so that `make build && sudo make install` builds nothing as root.
install:
	@test -x '$(BINARY)' || $(MAKE) build
	@install -d '$(DESTDIR)$(PREFIX)/bin'
	@install -m 755 '$(BINARY)' '$(DESTDIR)$(PREFIX)/bin/sluice'

deb: toolchain dependencies
	@SWIFT='$(SWIFT)' Deploy/debian/build

image: toolchain dependencies
	@SWIFT='$(SWIFT)' Deploy/image/build

sbom:
	@test -x '$(BINARY)' || $(MAKE) build
	@Deploy/image/sbom '$(BINARY)'

# Tests of whole workers run apart from the others, because they block threads that the others' timing depends on. They
# mostly wait, so their parts run at the same time, except on real brokers, which some tests pause.
WHOLE_WORKERS = ^(DeployTests|GatewayTests|ProcessTests)
WORKERS = test --skip-build --ignore-lock --filter

test: toolchain test-dependencies
ifeq ($(strip $(ARGS)),)
	@Deploy/run-tests.sh build $(SWIFT) build --build-tests
	@Deploy/run-tests.sh parts $(SWIFT) test --skip-build --skip '$(WHOLE_WORKERS)'
ifdef SLUICE_TEST_BOOTSTRAP_SERVERS
	@Deploy/run-tests.sh workers $(SWIFT) $(WORKERS) '$(WHOLE_WORKERS)'
else
	@output=.build/test-output; \
		setsid Deploy/run-tests.sh processes $(SWIFT) $(WORKERS) '^(DeployTests|ProcessTests)' >$$output/processes.end & first=$$!; \
		setsid Deploy/run-tests.sh gateway-2 $(SWIFT) $(WORKERS) '^GatewayTests\.[L-Z]' >$$output/gateway-2.end & second=$$!; \
		trap 'kill -INT -- -$$first -$$second' INT TERM; \
		Deploy/run-tests.sh gateway-1 $(SWIFT) $(WORKERS) '^GatewayTests\.[A-K]'; status=$$?; \
		wait $$first || status=$$?; wait $$second || status=$$?; \
		grep -hv 'tests passed$$' $$output/processes.end $$output/gateway-2.end; exit $$status
endif
else
	@Deploy/run-tests.sh chosen $(SWIFT) test $(ARGS)
endif

bench: toolchain test-dependencies
	@$(SWIFT) build -c release
	@Benchmarks/run $(ARGS)

bench-connection: toolchain test-dependencies
	@$(SWIFT) build -c release
	@Benchmarks/connection $(ARGS)

bench-core: toolchain
	@$(SWIFT) build -c release
	@Benchmarks/core $(ARGS)

bench-store: toolchain
	@$(SWIFT) build -c release
	@Benchmarks/store $(ARGS)

bench-simulator: toolchain test-dependencies
	@$(SWIFT) build -c release
	@Benchmarks/simulator $(ARGS)

bench-memory: toolchain dependencies
	@$(SWIFT) build -c release --product sluice
	@Benchmarks/memory $(ARGS)

bench-neighbour: toolchain test-dependencies
	@$(SWIFT) build -c release --product sluice
	@Benchmarks/neighbour $(ARGS)

MINUTES ?= 60

# Ends by itself, some minutes after MINUTES.
soak: toolchain dependencies
	@$(SWIFT) build -c release --product sluice
	@Benchmarks/soak --minutes $(MINUTES) $(ARGS)

# New inputs are written to .build/fuzz/corpus, failed inputs to .build/fuzz/failures.
# ARGS are libFuzzer's: `make fuzz ARGS='-runs=1000000'`. `make fuzz-merge` adds new inputs to the kept corpus.
FUZZ_CORPUS = Tests/Fuzz/Corpus/frames
FUZZ_ENVIRONMENT = SWIFT_BACKTRACE=enable=no ASAN_OPTIONS=malloc_context_size=2:quarantine_size_mb=8
FUZZ = $(FUZZ_ENVIRONMENT) .build/fuzz/release/sluice-fuzz-frames

fuzz: fuzz-build
	@$(FUZZ) -max_len=1024 -timeout=10 -print_final_stats=1 -artifact_prefix=.build/fuzz/failures/ $(ARGS) \
		.build/fuzz/corpus $(FUZZ_CORPUS)

fuzz-merge: fuzz-build
	@$(FUZZ) --seeds .build/fuzz/seeds
	@rm -rf .build/fuzz/merged && mkdir -p .build/fuzz/merged
	@$(FUZZ) -merge=1 .build/fuzz/merged $(FUZZ_CORPUS) .build/fuzz/corpus .build/fuzz/seeds
	@rm -rf $(FUZZ_CORPUS) && mv .build/fuzz/merged $(FUZZ_CORPUS)

# `fuzzer` must be last, because `address` would remove the coverage. SwiftPM's --sanitize has an order of its own.
fuzz-build: toolchain dependencies
	@SLUICE_FUZZ=1 $(SWIFT) build -c release --scratch-path .build/fuzz --product sluice-fuzz-frames \
		--sanitize address --sanitize fuzzer -Xswiftc -sanitize=fuzzer
	@mkdir -p .build/fuzz/corpus .build/fuzz/failures .build/fuzz/seeds

SEEDS ?= 1000
EVENTS ?= 300
FIRST ?= 1
JOBS ?= 2

# Assertions are on. A broken promise prints its seed, the steps before it, and the command that replays it. JOBS modes run
# at once.
simulate: toolchain test-dependencies
	@$(SWIFT) build -c release --product sluice-simulate --scratch-path .build/simulation \
		-Xswiftc -assert-config -Xswiftc Debug
	@printf '%s\n' transactions changelog local none | xargs -P $(JOBS) -I MODE \
		.build/simulation/release/sluice-simulate --mode MODE --seeds $(SEEDS) --events $(EVENTS) --first $(FIRST) $(ARGS)

simulate-mutations: toolchain test-dependencies
	@Tests/Simulation/mutations.py --swift $(SWIFT) --jobs $(JOBS) $(ARGS)

# Fails with survivors that have no reason in survivors.md.
simulate-mechanical: toolchain test-dependencies
	@Tests/Simulation/mechanical.py --swift $(SWIFT) --jobs $(JOBS) $(ARGS)

FAULTS ?= 60
SECONDS ?= 900
SEED ?=

# Bounded by SECONDS, after which no further fault begins. Prints its seed. An hour: FAULTS=100000 SECONDS=3600.
chaos: toolchain test-dependencies
	@test -n "$(SLUICE_TEST_BOOTSTRAP_SERVERS)" || { \
		echo 'make chaos: SLUICE_TEST_BOOTSTRAP_SERVERS must name real Kafka brokers: the embedded cluster has no transactions' >&2; exit 64; }
	@SLUICE_TEST_CHAOS_FAULTS=$(FAULTS) SLUICE_TEST_CHAOS_SECONDS=$(SECONDS) \
		$(if $(SEED),SLUICE_TEST_CHAOS_SEED=$(SEED)) $(SWIFT) test --filter ChaosTests $(ARGS)

# A check without its tool is left out, so nothing is installed here.
check-deploy:
	@Deploy/check-deploy $(ARGS)

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
