# One place for every task. `make` alone lists them.

VENV   := .venv
BIN    := $(VENV)/bin
SHELL  := /bin/bash
# The newest interpreter that will do. PYTHON=/path/to/python overrides it.
PYTHON ?= $(shell for each in python3.13 python3.12 python3.11 python3; do \
	$$each -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
	&& echo $$each && break; done)
# Families of processors for which `make wheel` compiles, and what pip may install it on.
FAMILIES := x86-64-v2 x86-64-v3
PLATFORM := manylinux_2_17_x86_64
CODE   := $(shell find dissector spark_jobs -name '*.py' -o -name '*.binpb' 2>/dev/null)
DEMO   := $(wildcard captures/pulsar-apache/java-j74_corrupt.pcap \
	captures/pulsar-apache/java-j24_unload.pcap \
	captures/pulsar-apache/cpp-s30_latency_mix-wireloss.pcap.gz \
	captures/pulsar-apache/java-j40_slow_consumer.pcap \
	captures/pulsar-apache/java-j17_blocked_unacked.pcap \
	captures/pulsar-apache/java-j12_nack.pcap \
	captures/pulsar-apache/java-j16_dlq_retry.pcap \
	captures/pulsar-apache/java-j61_txn_abort.pcap \
	captures/pulsar-apache/java-j23_errors.pcap \
	captures/pulsar-apache/java-j03_batch_lz4.pcap)
# The suite over as many processes as there are processors; a group of tests stays in one.
SHARED_OUT := --numprocesses=auto --maxprocesses=4 --dist=loadscope
# Where kernels have their own tests, and inputs are damaged: there they run with bounds checks. Without
# the compiler those run that changed; `make test-all` runs all of them in all three ways.
KERNEL_TESTS := $(addprefix tests/dissector/,codecs protobuf capture packet stream protocols \
	test_buckets.py test_bundles.py test_states.py) tests/fuzz
PYTEST := $(BIN)/python -m pytest -q

.DELETE_ON_ERROR:
.PHONY: help install demo test test-main test-beside test-all test-fast test-bounds test-plain \
	test-changed test-hdfs lint style types bench fuzz nightly coverage docs wheel clean

help:
	@echo 'make install   a virtual environment in $(VENV), the command $(BIN)/dissector'
	@echo 'make demo      install, then the whole pipeline on the sample captures, into demo/'
	@echo 'make test      install, then linter, types, all tests: those of kernels with bounds checks, and'
	@echo '               of kernels that changed without the compiler, too'
	@echo 'make test-all  the same over all samples, and all tests of kernels in all three ways: as they'
	@echo '               are, with bounds checks, and without the compiler'
	@echo 'make bench     speed and memory per kind of traffic and of reports, as tables'
	@echo 'make fuzz MINUTES=n   property tests with new seeds, then hostile input into every layer,'
	@echo '               guided by coverage; what fails is kept in build/fuzz'
	@echo 'make nightly   test-all, then fuzz'
	@echo 'make coverage  the tests once more under coverage.py, as text and in build/coverage'
	@echo 'make docs      the site of the documentation, in build/site'
	@echo 'make wheel     a wheel with compiled kernels for this Python, in dist/'
	@echo 'make clean     remove what the others made'

# -- set-up: each step leaves a stamp, so that a second call costs nothing

$(VENV)/.created:
	@test -n "$(PYTHON)" || { echo 'No Python 3.11, 3.12 or 3.13 was found: install one, or' \
		'name it with make PYTHON=/path/to/python'; exit 5; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.created
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[spark,jvm,tls,objects,hdfs,publish]'
	@touch $@

$(VENV)/.dev-installed: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[spark,jvm,tls,objects,hdfs,publish,dev]'
	@touch $@

# Bytecode, too: an editable install leaves it to the first run, and not everybody lets that write.
$(VENV)/.warm: $(VENV)/.installed $(CODE)
	$(BIN)/python -m compileall -q dissector spark_jobs
	$(BIN)/dissector doctor --warm
	@touch $@

install: $(VENV)/.warm

# -- tasks

demo: install
	@rm -rf demo
	@$(BIN)/dissector analyze $(DEMO) -o demo --engine spark

lint: style types

style: $(VENV)/.dev-installed
	$(BIN)/ruff check dissector spark_jobs tests proto captures docs dashboards

types: $(VENV)/.dev-installed
	$(BIN)/mypy

# Bytecode of tests is kept, whatever the environment says: to make it takes half a minute of each run.
unexport PYTHONDONTWRITEBYTECODE

# Users run these: nothing in them is drawn anew, the order of sets neither.
test test-main test-all test-fast test-bounds test-plain test-changed: export PYTHONHASHSEED := 0

# The main part waits for disks, timers and Java: what else there is to do runs beside it, one after the
# other, and is said when it has ended.
test: install $(VENV)/.dev-installed style
	$(MAKE) --no-print-directory -j2 test-main test-beside

test-main: $(VENV)/.dev-installed
	$(PYTEST) $(SHARED_OUT) $(KERNEL_TESTS:%=--ignore=%)

test-beside:
	$(MAKE) --no-print-directory --keep-going --output-sync=target types test-changed test-bounds

# All samples where `make test` looks at a few that show as much, see tests/choosing.py.
test-all: export DISSECTOR_ALL_SAMPLES := 1
test-all: install $(VENV)/.dev-installed lint
	$(PYTEST) $(SHARED_OUT)
	$(MAKE) --no-print-directory test-bounds test-plain

test-fast: install $(VENV)/.dev-installed
	$(PYTEST) -x tests/dissector

# In one process: half of it is to compile, and helpers of kernels are compiled in each process anew.
test-bounds: $(VENV)/.dev-installed
	DISSECTOR_BOUNDSCHECK=1 $(PYTEST) -p no:cacheprovider $(KERNEL_TESTS)

test-plain: $(VENV)/.dev-installed
	NUMBA_DISABLE_JIT=1 $(PYTEST) -p no:cacheprovider $(SHARED_OUT) $(KERNEL_TESTS)

test-changed: $(VENV)/.dev-installed
	changed=$$($(BIN)/python -m tests.changed $(KERNEL_TESTS)) && { test -z "$$changed" || \
		NUMBA_DISABLE_JIT=1 $(PYTEST) -p no:cacheprovider $(SHARED_OUT) $$changed; }

# A real HDFS, which Maven fetches.
test-hdfs: install $(VENV)/.dev-installed
	mvn --quiet --batch-mode --file tests/dissector/storage/hdfs/pom.xml dependency:build-classpath \
		-Dmdep.outputFile=$(CURDIR)/build/hdfs.classpath
	HDFS_CLASSPATH=$$(cat build/hdfs.classpath) $(PYTEST) tests/dissector/storage/test_hadoop.py

bench: install $(VENV)/.dev-installed
	$(BIN)/python -m tests.bench
	$(BIN)/python -m tests.reportbench

MINUTES ?= 10

# The fuzzer is not for every platform: without it, damaged copies alone.
fuzz: install $(VENV)/.dev-installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[spark,jvm,tls,objects,hdfs,publish,dev,fuzz]' \
		|| echo 'fuzz: atheris could not be installed; coverage does not guide this run' >&2
	$(PYTEST) $(SHARED_OUT) --hypothesis-profile=nightly -m hypothesis; \
		properties=$$?; $(BIN)/python -m tests.fuzz $(MINUTES) && exit $$properties

nightly:
	$(MAKE) --no-print-directory test-all
	! command -v mvn >/dev/null || $(MAKE) --no-print-directory test-hdfs
	$(MAKE) --no-print-directory fuzz

# Kernels as plain Python, or their lines would not be seen. Processes of tests and of commands that
# they start write a file each; `combine` adds them up.
coverage: $(VENV)/.dev-installed
	rm -rf build/coverage && mkdir -p build/coverage
	-NUMBA_DISABLE_JIT=1 $(BIN)/python -m coverage run -m pytest -q -p no:cacheprovider $(SHARED_OUT) tests
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage html --quiet
	$(BIN)/python -m coverage report --sort=cover

docs: $(VENV)/.dev-installed
	$(BIN)/python -m mkdocs build --strict

# Compiled for a family, not for this processor: its name and no feature of its own are told.
build/kernels/%: $(VENV)/.installed $(CODE)
	rm -rf $@
	NUMBA_CPU_NAME=$* NUMBA_CPU_FEATURES= DISSECTOR_CACHE=$(CURDIR)/$@ $(BIN)/dissector doctor --warm

wheel: $(FAMILIES:%=build/kernels/%)
	rm -rf dissector/data/kernels build/lib
	for family in $(FAMILIES); do \
		install -d dissector/data/kernels/$$family && \
		install -m 644 build/kernels/$$family/kernels-*/* dissector/data/kernels/$$family || exit 1; \
	done
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist . --config-settings=--build-option="\
		--plat-name=$(PLATFORM) \
		--python-tag=$$($(BIN)/python -c 'import sys; print("cp%d%d" % sys.version_info[:2])')"; \
	status=$$?; rm -rf dissector/data/kernels; exit $$status

clean:
	rm -rf dissector/data/kernels $(VENV) demo bench build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
