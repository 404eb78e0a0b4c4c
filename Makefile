# The few words people type. The build itself is Meson's: one folder a variant, build/ for every day.
BUILD ?= build
PREFIX ?= /usr/local

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## */  make \1\t/p' Makefile | expand -t 22

build: $(BUILD)/build.ninja ## compile into build/
	@ninja -C $(BUILD)

$(BUILD)/build.ninja:
	@tools/deps build
	@meson setup $(BUILD) --prefix $(PREFIX) >/dev/null

run: ## install what is needed, build, start the server, do a real job on three computers
	@tools/deps build run
	@$(MAKE) --no-print-directory build
	@tools/run-demo

stop: ## stop the server that make run started
	@if [ -x $(BUILD)/bureau ]; then $(BUILD)/bureau stop || [ $$? -eq 5 ]; else echo "nothing is built in $(BUILD): nothing runs from it"; fi

test: ## everything that can be tested on this machine (T="unit e2e" for some suites)
	@tools/deps || echo "going on with what is there: tests that miss something will say so"
	@$(MAKE) --no-print-directory build
	@tools/test $(T)

bench: build ## measure beside the peers, in one run
	@tests/perf/bench.py

asan: ## the tests under AddressSanitizer and UBSan (T="unit" for some suites)
	@[ -f build-asan/build.ninja ] || meson setup build-asan -Db_sanitize=address,undefined -Db_lundef=false >/dev/null
	@BUILD=build-asan tools/test $(or $(T),unit security e2e)

fuzz: ## each fuzz driver for FUZZ_SECONDS (20)
	@tools/fuzz $(T)

install: build ## install below PREFIX (/usr/local)
	@meson configure $(BUILD) --prefix $(PREFIX)
	@ninja -C $(BUILD)
	@meson install -C $(BUILD) --no-rebuild

clean: ## remove what was built
	@rm -rf build build-asan build-fuzz

.PHONY: help build run stop test bench asan fuzz install clean
