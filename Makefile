# The commands of README.md. Everything else is CMake's: see CMakePresets.json.

SANITIZE ?=
COMPILER ?= default
PRESET   := $(if $(SANITIZE),$(SANITIZE),$(COMPILER))
BUILD    := $(if $(SANITIZE),$(if $(findstring thread,$(SANITIZE)),build-tsan,build-asan),$(if $(filter clang,$(COMPILER)),build-clang,build))
JOBS     ?= $(shell nproc)
# The tests' PROCESSORS are halves of a processor (tests/CMakeLists.txt).
HALVES    = $(shell echo $$((2 * $(JOBS))))
SUDO     := $(if $(filter 0,$(shell id -u)),,sudo)
PACKAGES  = $(shell sed 's/\#.*//' packages.txt guest/packages.txt)
FUZZ_SECONDS ?= 900
COUNT    ?= 1000000
SEED     ?= 2022
KILLS    ?= 10000
BOOTS    ?= 300
DOOR_KILLS ?= 1000
RESTARTS ?= 100
MUTANTS  ?= 200
RUNS     ?= 300
KERNEL   ?= trixie
KERNELS  ?= trixie backports
SUITE    ?= trixie
QPS      ?= 1000
SOAK_SECONDS ?= 600
BAD_NETWORK_SECONDS ?= 259200
PYTHON   ?= /usr/bin/python3
MACHINE  ?=
WIRE     ?= sockets
MTU      ?= 1500
FAULTS   ?= none
FOLDERS  ?= hub door uverbs rdma_cm cm os util fabric wire
SANITIZERS = address,undefined thread
SUITES   ?= bookworm trixie sid
# For make test, because make check is to end soon: suites of many seeds, and hostile clients at a real server. tidy has run by then.
LONG_TESTS = ^tidy$$|^neighbours\.|^soak\.|RcSoak|BadNetworkSoak|ImpairedWire
CLANG_TIDY = clang-tidy-19 --quiet --extra-arg=-Wno-unknown-warning-option

.DEFAULT_GOAL := build
.PHONY: deps configure build softhca deb check test test-times test-unit test-host unit-repeat test-guest test-long boots nightly sanitize sanitized mutants mutants-random soak bad-network pyverbs pyverbs-host pyverbs-debian oracle door-kills distributions kernel-users soft-roce soft-roce-host machines clusters perftest examples dpdk verbs-soak demo bench fuzz coverage model docs site format format-check tidy clean help

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

deps: ## install what building, testing and booting guests need (Debian 12 or 13)
	$(SUDO) apt-get update
	$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $(PACKAGES)

configure:
	@cmake --preset $(PRESET) $(if $(wildcard $(BUILD)/CMakeCache.txt),>/dev/null,)

build: configure ## build everything (SANITIZE=address,undefined or thread; COMPILER=clang)
	@cmake --build $(BUILD) -j $(JOBS)

softhca: configure ## build the program alone
	@cmake --build $(BUILD) -j $(JOBS) --target softhca

deb: configure ## the Debian package of softhca and libsofthca.so: build/softhca_*.deb
	@cmake --build $(BUILD) -j $(JOBS) --target softhca softhca_preload
	@cd $(BUILD) && rm -f softhca_*.deb && cpack >cpack.log || { cat cpack.log; exit 1; }
	@ls $(BUILD)/softhca_*.deb

# Debug objects of clang with precompiled headers, in build-dev: quick to build again, slower to run.
check: ## before each commit: tidy, format, what changed is built, unit tests but the long ones (no guest, no program of the host)
	@tools/tidy.py
	@$(MAKE) --no-print-directory format-check
	@cmake --preset dev $(if $(wildcard build-dev/CMakeCache.txt),>/dev/null,)
	@cmake --build build-dev -j $(JOBS)
	@git diff -z --name-only --diff-filter=d HEAD -- 'src/*.cc' | \
	  xargs -0 -r -P $(JOBS) -n 1 $(CLANG_TIDY) -p build-dev
	@ctest --test-dir build-dev -j $(HALVES) --progress --output-on-failure --no-tests=error -LE 'guest|door' -E '$(LONG_TESTS)'

test: build ## all tests but the long ones; with SANITIZE= those that need neither a guest nor libsofthca.so
	@ctest --test-dir $(BUILD) -j $(HALVES) --output-on-failure --no-tests=error --output-junit tests.xml $(if $(SANITIZE),-LE 'guest|door',)

test-times: ## writes docs/test-times.md from the last `make test` (MACHINE, what to say of this one)
	@tools/test_times.py $(BUILD)/tests.xml --machine "$(MACHINE)"

test-unit: configure ## the unit tests (SANITIZE=address,undefined or thread)
	@cmake --build $(BUILD) -j $(JOBS) $(if $(SANITIZE),--target softhca tests/all,)
	@ctest --test-dir $(BUILD) -j $(HALVES) --output-on-failure --no-tests=error -L '^unit$$'

test-host: build ## the tests that need no guest
	@ctest --test-dir $(BUILD) -j $(HALVES) --output-on-failure --no-tests=error -LE guest

unit-repeat: build ## runs the unit tests RUNS (300) times beside two busy loops, and counts failures; goes on after Ctrl-C
	@tests/repeat $(BUILD) $(RUNS)

sanitize: ## unit tests of FOLDERS (hub, door and what they stand on), under ASan and UBSan, then under TSan (or SANITIZE)
	@for one in $(if $(SANITIZE),$(SANITIZE),$(SANITIZERS)); do $(MAKE) --no-print-directory sanitized SANITIZE=$$one || exit 1; done

sanitized: configure
	@cmake --build $(BUILD) -j $(JOBS) --target $(addsuffix _test,$(FOLDERS))
	@ctest --test-dir $(BUILD) -j $(HALVES) --output-on-failure --no-tests=error -L unit -R '^($(subst $() ,|,$(strip $(FOLDERS))))\.'

test-guest: build ## the tests that boot a Debian guest
	@ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -L guest

test-long: build ## the same, with those that `make test` leaves out for their length
	@ctest --test-dir $(BUILD) -C Long --output-on-failure --no-tests=error -L guest

boots: build ## boots BOOTS (300) guests of each kernel, more at a time than there are processors, and counts failures; goes on after Ctrl-C (KERNELS)
	@tests/guest/boots $(BUILD) $(BOOTS) $(addprefix --kernel ,$(KERNELS))

nightly: ## hours: all that has a target here, with the long lists of both kernels (TESTS as for pyverbs, SEED, STEPS=words, RESUME=1)
	@tools/nightly $(STEPS) $(if $(RESUME),--resume) $(if $(TESTS),--tests $(abspath $(TESTS))) $(if $(filter command,$(firstword $(origin SEED))),--seed $(SEED))

mutants: ## plants the bugs of tests/mutations one by one: a test must notice each (ONLY=word)
	@tests/mutations/run $(if $(ONLY),--only $(ONLY),)

mutants-random: ## draws MUTANTS (200) bugs over all folders from SEED; the share that the tests of each notice
	@tests/mutations/run --random $(MUTANTS) --seed $(SEED)

soak: build ## KILLS (10000) clients and RESTARTS (100) servers that are killed, without and with --isolate (SEED)
	@SOAK_KILLS=$(KILLS) SOAK_RESTARTS=$(RESTARTS) SOAK_SEED=$(SEED) $(BUILD)/tests/soak_test

bad-network: build ## eight hosts on a bad network for BAD_NETWORK_SECONDS (259200, three days) of virtual time (SEED)
	@BAD_NETWORK_SECONDS=$(BAD_NETWORK_SECONDS) BAD_NETWORK_SEED=$(SEED) $(BUILD)/tests/bad_network_test --gtest_filter='BadNetworkSoak.*'

pyverbs: softhca ## rdma-core's own tests in a guest; TESTS is the folder tests/ of its sources (KERNEL, SUITE=sid)
	@test -e "$(TESTS)/test_mr.py" || { echo "TESTS=FOLDER: the folder tests/ of rdma-core's sources" >&2; exit 1; }
	@rm -rf $(BUILD)/pyverbs && mkdir -p $(BUILD)/pyverbs && cp -r $(TESTS) $(BUILD)/pyverbs/tests
	@cp tests/guest/*.sh tests/guest/rdma_core_tests.py tests/guest/pyverbs_*.txt $(BUILD)/pyverbs
	@SOFTHCA=$(BUILD)/softhca guest/run --no-addresses --timeout 3600 --kernel $(KERNEL) --suite $(SUITE) --device connectx --device connectx \
	  --package python3-scapy --share $(BUILD)/pyverbs -- 'bash /share/pyverbs.sh $(SUITE)'

pyverbs-host: softhca ## rdma-core's own tests in a process of softhca run; TESTS as above (PYTHON, which has pyverbs)
	@cmake --build $(BUILD) -j $(JOBS) --target softhca_preload
	@$(BUILD)/softhca run -- $(PYTHON) tests/guest/rdma_core_tests.py $(abspath $(TESTS)/..) --dev mlx5_0 --limit 60 \
	  --skips tests/guest/pyverbs_skipped.txt --skips tests/door/pyverbs_skipped.txt

pyverbs-debian: deb ## the same on a fresh Debian with its own pyverbs, as a user and as root (SUITE; TESTS of its version)
	@test -e "$(TESTS)/test_mr.py" || { echo "TESTS=FOLDER: the folder tests/ of rdma-core's sources" >&2; exit 1; }
	@tests/package/pyverbs.py $(BUILD) $(SUITE) $(TESTS)

oracle: softhca ## what the kernel says in guests and the door says here, line by line: both kernels, programs of Debian 12 and 13 (KERNELS, SUITES)
	@cmake --build $(BUILD) -j $(JOBS) --target softhca_preload oracle
	@KERNELS="$(KERNELS)" SUITES="$(filter-out sid,$(SUITES))" tests/oracle/all $(BUILD)

door-kills: softhca ## DOOR_KILLS (1000) programs of softhca run that are killed beside a peer (SEED)
	@cmake --build $(BUILD) -j $(JOBS) --target softhca_preload
	@tests/door/kills.py $(BUILD)/softhca $(DOOR_KILLS) $(SEED)

distributions: deb ## the package on other Debians, with their own programs (SUITES)
	@cmake --build $(BUILD) -j $(JOBS) --target leave_together
	@tests/package/distributions.py $(BUILD) $(SUITES)

kernel-users: softhca ## NVMe-oF, NFS, iSER without and with T10-DIF between two guests, every byte compared (KERNEL=backports, LOSS=0.001)
	@rm -rf $(BUILD)/kernel_users && mkdir -p $(BUILD)/kernel_users && cp tests/guest/*.sh tests/guest/*.py $(BUILD)/kernel_users
	@SOFTHCA=$(BUILD)/softhca guest/run --no-addresses --timeout 1800 --kernel $(KERNEL) --guests 2 --device connectx \
	  $(if $(LOSS),--server-arg=--loss=$(LOSS)) --package open-iscsi --package nfs-kernel-server \
	  --share $(BUILD)/kernel_users -- 'bash /share/kernel_users.sh 8'

soft-roce: softhca ## our RoCE and rdma_rxe on a device of ours, in two guests, both ways (KERNEL, LOSS=0.01)
	@rm -rf $(BUILD)/soft_roce && mkdir -p $(BUILD)/soft_roce && cp tests/guest/*.sh tests/guest/unreliable.py $(BUILD)/soft_roce
	@SOFTHCA=$(BUILD)/softhca guest/run --no-addresses --timeout 1800 --kernel $(KERNEL) --guests 2 --device connectx \
	  $(if $(LOSS),--server-arg=--loss=$(LOSS)) --share $(BUILD)/soft_roce -- 'bash /share/soft_roce.sh $(if $(LOSS),loss)'

soft-roce-host: softhca ## programs of softhca run on this host with a guest's RoCE and rdma_rxe, by UDP and a TAP (root, KERNEL)
	@tests/guest/host_network $(BUILD)/softhca $(KERNEL)

machines: softhca ## programs of Debian between four machines, which are namespaces (WIRE=trunk, MTU=9000, FAULTS=lossy, ONLY=word)
	@cmake --build $(BUILD) -j $(JOBS) --target softhca_preload
	@tests/door/four_machines.sh $(BUILD)/softhca $(BUILD)/tests/door $(WIRE) $(MTU) $(FAULTS) $(ONLY)

clusters: configure ## MPI jobs and Slurm on two and four machines, which are namespaces (docs/clusters.md); names the packages that it needs
	@cmake --build $(BUILD)
	@/usr/bin/python3 tests/door/clusters.py $(BUILD)/softhca

perftest: softhca ## all programs of perftest in a guest, with all transports and options (KERNEL, ONLY=word)
	@rm -rf $(BUILD)/perftest && mkdir -p $(BUILD)/perftest && cp tests/guest/*.sh $(BUILD)/perftest
	@SOFTHCA=$(BUILD)/softhca guest/run --no-addresses --timeout 3600 --kernel $(KERNEL) --device connectx --device connectx \
	  --share $(BUILD)/perftest -- 'bash /share/perftest_all.sh $(ONLY)'

examples: softhca ## every example of libibverbs and librdmacm in a guest (KERNEL, ONLY=word)
	@rm -rf $(BUILD)/examples && mkdir -p $(BUILD)/examples && cp tests/guest/*.sh tests/guest/address_handle.py $(BUILD)/examples
	@SOFTHCA=$(BUILD)/softhca guest/run --no-addresses --timeout 1800 --kernel $(KERNEL) --device connectx --device connectx \
	  --share $(BUILD)/examples -- 'bash /share/examples.sh $(ONLY)'

dpdk: softhca ## DPDK's testpmd on two devices, Linux on two others, in a guest (KERNEL)
	@rm -rf $(BUILD)/dpdk && mkdir -p $(BUILD)/dpdk && cp tests/guest/*.sh tests/guest/transfer.py tests/guest/dpdk_peer.py $(BUILD)/dpdk
	@SOFTHCA=$(BUILD)/softhca guest/run --no-addresses --timeout 1200 --kernel $(KERNEL) \
	  $(foreach side,left left right right,--device connectx --server-arg=--port --server-arg=switch:$(side)) \
	  --package dpdk-dev --package librte-net-mlx5-25 --package librte-mempool-ring25 \
	  --share $(BUILD)/dpdk -- 'bash /share/dpdk.sh'

verbs-soak: softhca ## two guests, QPS (1000) queue pairs, every byte checked for SOAK_SECONDS (600) (KERNEL, SEED)
	@SOFTHCA=$(BUILD)/softhca TIMEOUT=$$(($(SOAK_SECONDS) + 1800)) tests/guest/verbs_soak $(BUILD)/verbs_soak $(KERNEL) \
	  --qps $(QPS) --seconds $(SOAK_SECONDS) --seed $(SEED)

demo: ## from a bare machine to ib_read_bw between two devices, with a capture
	@tools/demo

bench: build ## benchmarks, each beside its peer in the same run; build/bench.json
	@bench/run $(BUILD)

fuzz: ## run every fuzzer for FUZZ_SECONDS (900) under ASan and UBSan, JOBS at a time
	@cmake --preset fuzz && cmake --build build-fuzz -j $(JOBS)
	@fuzz/run build-fuzz --seconds $(FUZZ_SECONDS) --jobs $(JOBS)

coverage: ## what tests and fuzzers reach, by line, of each folder; docs/coverage.md lists the functions that nobody calls
	@cmake --preset coverage >/dev/null && cmake --build build-coverage -j $(JOBS) --target tests/all fuzz/all softhca softhca_preload
	@tools/coverage.py build-coverage

model: configure ## SDXI device against its reference model: COUNT (1000000) random sequences of SEED (2022)
	@cmake --build $(BUILD) -j $(JOBS) --target sdxi_test
	@COUNT=$(COUNT) SEED=$(SEED) $(BUILD)/tests/sdxi_test --gtest_also_run_disabled_tests \
	  --gtest_brief=1 --gtest_filter='*AMillionRandomSequencesAgree'

format: ## clang-format all C++ sources
	@git ls-files '*.h' '*.cc' | xargs clang-format-19 -i

format-check:
	@git ls-files -z '*.h' '*.cc' | xargs -0 -P $(JOBS) -n 40 clang-format-19 --dry-run --Werror

docs: softhca ## the parts of docs/ that are made of tables
	@tools/docs.py --program $(BUILD)/softhca

site: ## the pages as a site with search, in build/site; fails if a link is broken
	@/usr/bin/python3 -c 'import mkdocs, material' 2>/dev/null || { echo "make site needs: apt-get install mkdocs mkdocs-material" >&2; exit 1; }
	@tools/make_site.py

tidy: ## the repository's own rules, then clang-tidy, which needs the command of each file: the preset dev
	@tools/tidy.py
	@cmake --preset dev $(if $(wildcard build-dev/CMakeCache.txt),>/dev/null,)
	@git ls-files 'src/*.cc' | xargs -P $(JOBS) -n 4 $(CLANG_TIDY) -p build-dev

clean: ## remove all build directories (the guest image cache stays: see guest/README.md)
	rm -rf build build-*
