# The two commands: `make demo` and `make test`. Both set up .venv first, and skip what is already done.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(shell find runtime/CMakeLists.txt runtime/VERSION runtime/cmake runtime/include runtime/src runtime/testing runtime/tools -type f)
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
JOBS ?= 2

# What `make arm` makes for 64-bit ARM.
ARM := build/py3-none-linux_aarch64
CROSS := -C cmake.args=-DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/runtime/cmake/aarch64.cmake

.PHONY: demo test test-cpp test-musl fuzz test-python lint format dist constraints bench-serve arm clean setup

demo: setup
	$(BIN)/bitedge pipeline --recipe digits --out demo

test: test-cpp test-python

test-python: setup
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

# The core's own tests: optimized, under sanitizers, on ARM, with musl, by clang; and a minute of fuzzing.
test-cpp: ctest-release ctest-asan ctest-tsan ctest-arm test-musl
	@if command -v clang++ >/dev/null; then $(MAKE) --no-print-directory ctest-clang fuzz; else \
	  echo "No build by clang, no fuzzing: missing clang++ (Debian: clang libclang-rt-dev)"; [ "$$CI" != true ]; fi

ctest-release: FLAVOUR = -DCMAKE_BUILD_TYPE=Release
ctest-asan: FLAVOUR = -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O1 -DBITEDGE_SANITIZE=address,undefined
ctest-clang: FLAVOUR = -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++
ctest-clang: SKIPPED = -E 'networks_test|injection_test|failure_test'  # the compiler is what is tested
ctest-tsan: FLAVOUR = -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O1 -DBITEDGE_SANITIZE=thread
ctest-aarch64: FLAVOUR = -DCMAKE_BUILD_TYPE=Release -DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/runtime/cmake/aarch64.cmake
ctest-armv7: FLAVOUR = -DCMAKE_BUILD_TYPE=Release -DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/runtime/cmake/armv7.cmake
ctest-%: $(VENV)/.tools
	@echo "Building and running the core's tests in build/test-$*"
	@$(BIN)/cmake -S runtime -B build/test-$* -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	  -DBITEDGE_TESTS=ON $(FLAVOUR) >build/test-$*.log 2>&1 \
	  && $(BIN)/cmake --build build/test-$* >>build/test-$*.log 2>&1 || { cat build/test-$*.log; exit 1; }
	$(BIN)/ctest --test-dir build/test-$* --parallel $(JOBS) --output-on-failure --no-tests=error $(SKIPPED)

# The same tests on ARM, cross-compiled and run by qemu-user: every kernel, whole networks, golden files.
ctest-arm:
	@missing=; for tool in aarch64-linux-gnu-g++ qemu-aarch64-static arm-linux-gnueabihf-g++ qemu-arm-static; do \
	  command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	if [ -z "$$missing" ]; then $(MAKE) --no-print-directory ctest-aarch64 ctest-armv7; else \
	  echo "No tests on ARM: missing$$missing (Debian: g++-aarch64-linux-gnu g++-arm-linux-gnueabihf qemu-user-static)"; \
	  [ "$$CI" != true ]; fi

# The same tests with musl instead of glibc, by the compiler of PyPI's ziglang, which builds musl and libc++ first.
test-musl: $(VENV)/.tools
	@if ls /lib/ld-musl-*.so.1 >/dev/null 2>&1 && $(PIP) ziglang; then $(MAKE) --no-print-directory ctest-musl; else \
	  echo "No tests with musl: missing its loader (Debian: musl) or PyPI's ziglang"; [ "$$CI" != true ]; fi
ctest-musl: FLAVOUR = -DCMAKE_BUILD_TYPE=Release -DBITEDGE_TOOLS=OFF \
  -DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/runtime/cmake/musl.cmake -DBITEDGE_ZIG=$(CURDIR)/$(BIN)/python-zig
ctest-musl: SKIPPED = -E portable_vector_test  # its reference, musl's fmaf, rounds some subnormal sums twice
ctest-musl: export ZIG_GLOBAL_CACHE_DIR = $(CURDIR)/build/zig
ctest-musl: export ZIG_LOCAL_CACHE_DIR = $(CURDIR)/build/zig

# The fuzz target, by clang, for a minute from the corpus on; what it finds is left in build/findings.
FUZZ_SECONDS ?= 60
fuzz: $(VENV)/.tools
	@clang++ --version >/dev/null || { echo "make fuzz needs clang and its libraries (Debian: clang libclang-rt-dev)"; exit 2; }
	@mkdir -p build/findings
	@$(BIN)/cmake -S runtime -B build/fuzz -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DBITEDGE_FUZZ=ON \
	  -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DBITEDGE_SANITIZE=address,undefined \
	  -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O1 >build/fuzz.log 2>&1 \
	  && $(BIN)/cmake --build build/fuzz --target read_fuzz >>build/fuzz.log 2>&1 || { cat build/fuzz.log; exit 1; }
	@cd build/findings && ../fuzz/fuzz/read_fuzz . ../../runtime/fuzz/corpus -dict=../../runtime/fuzz/packed.dict \
	  -max_total_time=$(FUZZ_SECONDS) -timeout=60 -rss_limit_mb=2048 -print_final_stats=1 >fuzz.txt 2>&1 \
	  || { tail -n 40 fuzz.txt; exit 1; }
	@grep stat::number_of_executed_units build/findings/fuzz.txt

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy train export runtime/bitedge serve cli tests
	$(BIN)/lint-imports
	$(BIN)/python runtime/tools/check_includes.py
	git ls-files '*.cpp' '*.h' '*.hpp' '*.c' | xargs $(BIN)/clang-format --dry-run -Werror

# Load on loopback only, bounded; needs wrk and h2load (Debian: wrk, nghttp2-client).
bench-serve: setup
	cd serve && ../$(BIN)/python -m bench.run

# For a Raspberry Pi or a phone: bitedge-bench as one static file, and the wheel (Debian: g++-aarch64-linux-gnu).
arm: $(VENV)/.tools
	@aarch64-linux-gnu-g++ --version >/dev/null || { echo "make arm needs a cross compiler: apt-get install g++-aarch64-linux-gnu"; exit 2; }
	@rm -f dist/bitedge-*aarch64*
	$(PIP) wheel
	_PYTHON_HOST_PLATFORM=linux-aarch64 CMAKE_GENERATOR=Ninja $(BIN)/python -m pip --disable-pip-version-check wheel --quiet \
	  --no-deps --no-build-isolation --wheel-dir dist $(CROSS) -C cmake.define.BITEDGE_STATIC_TOOLS=ON .
	aarch64-linux-gnu-strip -o dist/bitedge-bench-aarch64 $(ARM)/tools/bitedge-bench
	$(BIN)/python runtime/tools/retag.py dist/bitedge-*-linux_aarch64.whl

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	git ls-files '*.cpp' '*.h' '*.hpp' '*.c' | xargs $(BIN)/clang-format -i

# The distributions, and what PyPI and pip will say about them. RELEASE.md has the rest.
dist: setup
	rm -f dist/*.tar.gz dist/*-linux_*.whl
	CMAKE_GENERATOR=Ninja $(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/twine check --strict dist/*.tar.gz dist/*-linux_*.whl
	$(BIN)/check-wheel-contents dist/*-linux_*.whl
	$(BIN)/auditwheel show dist/*-linux_*.whl

# Every package that `make setup` installs, at one version. Versions stay; `make constraints UPGRADE=--upgrade` moves them.
UPGRADE ?=
constraints: $(VENV)/.tools
	$(PIP) uv
	$(BIN)/uv pip compile pyproject.toml --extra dev --constraint constraints.in --python-version 3.11 \
	  --no-header --no-annotate --quiet $(UPGRADE) --output-file constraints.txt

setup: $(VENV)/.installed

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "bitedge needs Python 3.11 or later; run make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.tools: constraints.txt | $(VENV)/bin/python
	@mkdir -p build
	$(PIP) pip scikit-build-core cmake ninja
	@touch $@

# The packages, and the core: an editable install, done again when the core's sources or the lists change.
$(VENV)/.installed: $(VENV)/.tools pyproject.toml $(NATIVE)
	@echo "Installing bitedge and what it needs into $(VENV) (the first time takes a few minutes)"
	CMAKE_GENERATOR=Ninja $(PIP) --no-build-isolation --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
