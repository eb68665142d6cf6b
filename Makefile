# The front door. CMake does the work (CMakePresets.json); scripts behind some targets are in tools/make/.
#   make TARGET [JOBS=n] [CMAKE_FLAGS=...] [PREFIX=/usr/local] [DESTDIR=]

JOBS ?= $(shell nproc)
CMAKE_FLAGS ?=
PREFIX ?= /usr/local
export JOBS CMAKE_FLAGS

tree = tools/make/tree.sh
# Each target builds one kind of package into build/packages.
packages = wheels perl-dist rocks debs dist containers

.DEFAULT_GOAL := build
.PHONY: help build deps demo lm logreg kvstore survive test sanitizers check test-frameworks test-engines test-dashboard asan tsan fuzz cuda test-cuda bench-cuda bench \
  nightly fresh install abi-update format lint \
  site man clean $(packages) packages test-packages abi-check release-check

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Builds into build/; then `source build/activate` (this is also plain `make`)
	@tools/make/deps.sh --check build
	@$(tree) release

deps: ## Installs the Debian packages that are missing, as root or with sudo
	@tools/make/deps.sh build

demo: deps ## Trains digits with a Perl, a Python and a Lua worker on one table; measures one worker against two
	@$(tree) release polyverso_command polyverso_python polyverso_perl polyverso_lua5.1
	@. build/activate && python3 examples/digits/demo.py

lm: deps ## Trains word vectors in three languages, kills all processes midway, and goes on from the checkpoint
	@$(tree) release shipped
	@. build/activate && python3 examples/lm/demo.py

logreg: deps ## Learns the Old from the New Testament: sparse logistic regression, FTRL on the servers
	@$(tree) release shipped
	@. build/activate && python3 examples/logreg/demo.py

kvstore: deps ## Trains a network through a key-value store in three languages; kills it and goes on from the optimizer's states
	@$(tree) release shipped
	@. build/activate && python3 examples/kvstore/demo.py

survive: deps ## Trains in three languages while a process is killed every five seconds, and a fresh one takes its place
	@$(tree) release shipped
	@. build/activate && python3 examples/survive/demo.py

test: deps ## Runs the tests of every language, in the release tree
	@tools/make/deps.sh ffi || echo "test: goes on without these; tests/ffi reports them as skipped"
	@tools/make/test.sh release

sanitizers: deps ## Runs the core's and the C tests under ASan+UBSan, then under TSan
	@tools/make/test.sh asan tsan

check: export THOROUGH = yes
check: test sanitizers ## Runs `make test` with more of the simulators' seeds and the search for bugs that are put in, then `make sanitizers`

test-frameworks: deps ## Runs the adapters' tests with the real PyTorch, Keras, Theano, Lasagne; TORCH=2.6: with PyPI's PyTorch of that version
	@tools/make/deps.sh frameworks || echo "test-frameworks: goes on without these; PyPI has them, too"
	@tools/make/frameworks.sh $(TORCH)

test-engines: deps ## Runs the tests with the launchers that sites use: MPICH's mpiexec, Slurm, torchrun, Ray; installs them
	@tools/make/deps.sh engines || echo "test-engines: goes on without these; the tests of what is missing are skipped"
	@tools/make/engines.sh

test-dashboard: deps ## Runs the dashboard's tests in Chromium, and those of packaging/prometheus in a Prometheus; installs both
	@tools/make/deps.sh browser monitoring || echo "test-dashboard: goes on without these"
	@tools/make/test_dashboard.sh

asan: deps ## Runs the core's and the C tests under AddressSanitizer and UBSan
	@tools/make/test.sh asan

tsan: deps ## Runs the core's and the C tests under ThreadSanitizer
	@tools/make/test.sh tsan

fuzz: ## Fuzzes every parser for SECONDS=60 each, from the corpora in tests/fuzz
	@tools/make/deps.sh build fuzz
	@tools/make/fuzz.sh $(or $(SECONDS),60)

cuda: ## Builds the plug-in for NVIDIA's devices into build/lib: finds nvcc, or brings it from PyPI; needs no device
	@tools/make/deps.sh --check build
	@tools/make/cuda.sh

test-cuda: ## Tests the plug-in on this machine's NVIDIA device; where there is none, leaves build/cuda-tree to be carried to one
	@tools/make/deps.sh build
	@tools/make/device.sh test

bench-cuda: ## Measures the plug-in's kernels against the device's own copies; where there is no device, leaves build/cuda-tree
	@tools/make/deps.sh build
	@tools/make/device.sh bench

bench: ## Measures against memcpy, sockets and MXNet into build/bench/; BENCH="--quick" are options
	@tools/make/deps.sh build bench
	@tools/make/bench.sh $(BENCH)

nightly: ## What is too long for `make test`: more seeds of the simulator, more fuzzing
	@tools/make/deps.sh build fuzz
	@tools/make/nightly.sh

fresh: ## Proves `make demo` and `make test` in a minimal Debian 12 made for it; takes root
	@tools/make/fresh.sh

wheels: ## Builds the Python packages into build/packages/: the source distribution, the wheel of it, polyverso-compat
	@tools/make/deps.sh build
	@tools/make/wheels.sh

install: ## Installs into PREFIX=/usr/local, below DESTDIR= if given
	@tools/make/deps.sh --check build
	@$(tree) release shipped
	@DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)"

dist: ## Makes the source tarball of HEAD, with its checksum and its bill of materials
	@tools/make/dist.sh

debs: dist ## Builds the Debian packages: libpolyverso0, libpolyverso-dev, polyverso-tools and one for each language
	@tools/make/deps.sh build packages
	@tools/make/debs.sh

containers: debs ## Builds container images of the Debian packages, without a daemon: runtime and dev
	@tools/make/containers.sh

packages: $(packages) ## Builds the packages of every language into build/packages/; each has a target of its own, see above

test-packages: ## Installs each package of build/packages/ into an empty place and runs its tests there; TESTS="deb dist": only these
	@tests/packages/run $(TESTS)

abi-check: ## Compares the ABI with the newest tag's, or with BASE=COMMIT; runs a program that was compiled for that one
	@tools/make/deps.sh build packages
	@tools/make/abi_check.sh $(BASE)

release-check: ## Does all that a release needs, goes on after a failure, and prints one table; ONLY="dist debs": only these steps
	@tools/make/release_check.sh $(ONLY)

perl-dist: ## Writes the distributions for CPAN clients, Polyverso and Polyverso-AI-MXNet, into build/packages/
	@tools/make/deps.sh build perl-dist
	@tools/make/perl-dist.sh

rocks: ## Writes the rocks for LuaRocks, of source and binary, into build/packages/
	@tools/make/deps.sh build rocks
	@tools/make/rocks.sh

abi-update: ## Takes the public ABI as built for the checked one, tests/abi/abi.txt; look at the diff
	@$(tree) release abi-update

format: ## Formats the C++ sources with clang-format
	@tools/make/deps.sh lint
	@git ls-files 'core/*.?pp' 'capi/src/*.?pp' 'tools/*.?pp' 'tests/*.?pp' 'bench/*.?pp' | xargs -r clang-format -i

lint: ## Lists large files, functions and classes; checks the C++ sources with clang-tidy, the Lua sources with luacheck, and the shell scripts
	@tools/make/deps.sh build lint
	@tools/make/lint.sh

site: ## Builds the documents and references as HTML into build/site/
	@tools/make/deps.sh build site
	@$(tree) release shipped
	@tools/make/site.sh

man: ## Builds man pages and shell completions of `polyverso` into build/share/; `make install` does so, too
	@tools/make/deps.sh --check build
	@$(tree) release polyverso_pages

clean: ## Removes build/
	@rm -rf build
