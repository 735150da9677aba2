# Short names for common tasks; the build itself is CMakeLists.txt. `make help` lists the targets.

BUILD        ?= build
PREFIX       ?= /usr/local
DESTDIR      ?=
JOBS         ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_FLAGS  ?=
FUZZ_SECONDS ?= 20
GENERATOR    := $(if $(shell command -v ninja 2>/dev/null),-G Ninja)

CONFIGURE = cmake $(GENERATOR) -S . $(CMAKE_FLAGS)
COMPILE   = cmake --build $(1) --parallel $(JOBS)
SOURCES   = find src include tests examples bench \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cc' \)

.PHONY: all build demo test test-long bench asan fuzz lint docs install clean help
.DELETE_ON_ERROR:

all: build

# CMake re-runs itself when a file list changes; make only runs it the first time.
%/CMakeCache.txt:
	@$(CONFIGURE) -B $*

build:
	@tools/setup.sh --check
	@$(MAKE) -s --no-print-directory $(BUILD)/CMakeCache.txt
	@$(call COMPILE,$(BUILD))

demo:
	@tools/setup.sh --demo
	@$(MAKE) -s --no-print-directory $(BUILD)/CMakeCache.txt
	@$(call COMPILE,$(BUILD)) --target banyan
	@BUILD=$(BUILD) tools/demo.sh

test:
	@tools/setup.sh --test
	@$(MAKE) -s --no-print-directory build
	@tools/run-tests.sh $(BUILD)

test-long:
	@tools/setup.sh --test
	@$(MAKE) -s --no-print-directory build
	@tools/run-tests.sh $(BUILD) --long

bench: build
	@BUILD=$(BUILD) bench/run.sh

asan:
	@tools/setup.sh --test
	@$(MAKE) -s --no-print-directory build-asan/CMakeCache.txt CMAKE_FLAGS="-DBANYAN_SANITIZE=address,undefined $(CMAKE_FLAGS)"
	@$(call COMPILE,build-asan)
	@tools/run-tests.sh build-asan

# New inputs go to build-fuzz/corpus, crashes to build-fuzz/; tests/fuzz/corpus is only read.
fuzz:
	@command -v clang >/dev/null || { echo "make fuzz needs clang: apt-get install clang" >&2; exit 1; }
	@$(MAKE) -s --no-print-directory build-fuzz/CMakeCache.txt CMAKE_FLAGS="-DCMAKE_C_COMPILER=clang -DBANYAN_FUZZ=ON \
	    -DBANYAN_SANITIZE=address,undefined -DBANYAN_TESTS=OFF -DBANYAN_EXAMPLES=OFF -DBANYAN_OPENMP=OFF \
	    -DBANYAN_DNNL=OFF -DBANYAN_OPENBLAS=OFF -DBANYAN_CUDA=OFF $(CMAKE_FLAGS)"
	@$(call COMPILE,build-fuzz)
	@set -e; for source in tests/fuzz/fuzz_*.c; do \
	    [ -e "$$source" ] || { echo "no fuzz targets in tests/fuzz"; break; }; \
	    program=$$(basename $$source .c); name=$${program#fuzz_}; \
	    mkdir -p build-fuzz/corpus/$$name; seeds=tests/fuzz/corpus/$$name; [ -d $$seeds ] || seeds=; \
	    echo "$$program: $(FUZZ_SECONDS) seconds"; \
	    build-fuzz/$$program -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=build-fuzz/ -verbosity=0 \
	        -print_final_stats=1 build-fuzz/corpus/$$name $$seeds; \
	done

# The CUDA kernels are compiled three times here: by nvcc where it is, and emulated by g++ and clang++.
lint:
	@if command -v clang-format >/dev/null; then $(SOURCES) -print0 2>/dev/null | xargs -0r clang-format --dry-run -Werror; \
	    else echo "lint: clang-format is not installed, layout skipped"; fi
	@tools/check-layers.sh
	@tools/check-names.sh
	@if command -v cppcheck >/dev/null; then \
	    cppcheck --quiet --std=c11 --enable=warning,portability --inline-suppr --error-exitcode=1 -j $(JOBS) \
	        --suppress=missingIncludeSystem --suppressions-list=tools/cppcheck.supp -DBY_ISA=generic -DBY_ISA_LEVEL=0 -D_GNU_SOURCE -Iinclude -Isrc src; \
	elif command -v run-clang-tidy >/dev/null && [ -e $(BUILD)/compile_commands.json ]; then \
	    run-clang-tidy -quiet -p $(BUILD) '/src/'; \
	else echo "lint: neither cppcheck nor clang-tidy is installed, skipped"; fi
	@set -e; for cc in gcc clang; do \
	    command -v $$cc >/dev/null || { echo "lint: $$cc is not installed, skipped"; continue; }; \
	    if [ $$cc = gcc ]; then more="-DCMAKE_CXX_COMPILER=g++"; else more="-DCMAKE_CXX_COMPILER=clang++ -DBANYAN_CUDA=OFF"; fi; \
	    $(MAKE) -s --no-print-directory build-lint-$$cc/CMakeCache.txt \
	        CMAKE_FLAGS="-DCMAKE_C_COMPILER=$$cc $$more -DCMAKE_COMPILE_WARNING_AS_ERROR=ON $(CMAKE_FLAGS)"; \
	    $(call COMPILE,build-lint-$$cc); \
	done
	@echo "lint: ok"

# The public headers as one page. A public function without a comment is an error.
docs:
	@mkdir -p $(BUILD)/docs
	@LC_ALL=C awk -f tools/api.awk include/banyan/*.h >$(BUILD)/docs/api.html
	@echo "$(BUILD)/docs/api.html"

# Builds only the installed targets. The manual pages and completions are generated with the program.
install:
	@tools/setup.sh --check
	@$(MAKE) -s --no-print-directory $(BUILD)/CMakeCache.txt
	@cmake -S . -B $(BUILD) -DCMAKE_INSTALL_PREFIX=$(abspath $(PREFIX)) >/dev/null
	@$(call COMPILE,$(BUILD)) --target banyan banyan-static banyan-shared
	@DESTDIR=$(if $(DESTDIR),$(abspath $(DESTDIR))) cmake --install $(BUILD)

clean:
	rm -rf build build-asan build-fuzz build-lint-gcc build-lint-clang

help:
	@echo "Build and test"
	@echo "  make            build the libraries and the program in $(BUILD)/"
	@echo "  make demo       install missing packages, build, train a small model and generate text"
	@echo "  make test       build and run every test; the last line counts them"
	@echo "  make test-long  run the long tests, with every sample of the emulated GPU kernels"
	@echo "  make bench      measure speed (bench/run.sh)"
	@echo "  make install    install to PREFIX=$(PREFIX), below DESTDIR=$(DESTDIR)"
	@echo "  make clean      remove the build folders"
	@echo "Check the code"
	@echo "  make asan       run the tests under the address and undefined-behaviour sanitizers"
	@echo "  make fuzz       run each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS) seconds (needs clang)"
	@echo "  make lint       check layout, include rules and names, run static checks, treat warnings as errors"
	@echo "  make docs       write the API reference to $(BUILD)/docs/api.html"
	@echo "Variables"
	@echo "  BUILD=$(BUILD)  JOBS=$(JOBS)  CMAKE_FLAGS (for example -DBANYAN_DNNL=OFF, -DBANYAN_OPENMP=OFF)"
	@echo "GPUs"
	@echo "  By default nvcc compiles for the NVIDIA GPU of this machine, and not at all without one. CMAKE_FLAGS selects"
	@echo "  others: -DBANYAN_CUDA=ON all GPUs (about ten minutes on two cores), -DBANYAN_CUDA_ARCHS=90a those named,"
	@echo "  -DBANYAN_CUDA=OFF none."
