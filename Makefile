# Short names for frequent commands; `make help` lists them.
.PHONY: coverage docs help dev fmt lint types arch test newest test-all property fuzz compat beside chaos campaign lives model client-campaign spark-campaign mutants browser spark bench soak image bare chart load run check clean
B := .venv/bin

help:      ## this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'
dev:       ## install the project and its tools into .venv
	scripts/install dev
fmt: dev   ## format, and fix lint findings that can be fixed automatically
	$(B)/ruff check --fix . ; $(B)/ruff format . ; $(B)/mdformat *.md docs/*.md docs/evidence/*.md docs/internals/*.md client/*.md pipelines/*.md
lint: dev  ## ruff, mypy, mdformat, import rules, words of the pages
	./test lint
docs: dev  ## the documentation site, into .site
	$(B)/mkdocs build --strict
types: dev ## mypy only
	$(B)/mypy
arch: dev  ## import rules only
	$(B)/lint-imports
test:      ## the fast tests
	./test fast
newest:    ## the tests that depend on the standard library, on the newest Python that can be found or fetched
	./test newest
test-all:  ## all tests
	./test fast compiled newest slow fuzz chaos browser spark compat
coverage: dev ## branch coverage of each package, compared with docs/evidence/reliability.md; takes fifteen minutes
	$(B)/coverage erase
	-COVERAGE_FILE=$(CURDIR)/.coverage $(B)/coverage run -m pytest -q -n 5 --dist=loadfile --reruns 2 \
		-m "not (compat or chaos or browser)" -k "not dockerfile_steps" $(TESTS)
	$(B)/coverage combine -q
	$(B)/python scripts/branch_coverage.py
property: dev ## property tests only
	$(B)/pytest -q tests/property
fuzz: dev  ## fuzzers, each for its share of T seconds, a minute by default: make fuzz T=600
	$(B)/python -m tests.fuzz --seconds $(or $(T),60)
compat:    ## test suites of public NSQ clients against our daemons
	./test compat
beside: dev ## integration tests on the original's programs, to prove equal behaviour: make beside GO=FOLDER
	NSQ_UNDER_TEST=original NSQ_GO_BIN=$(GO) $(B)/pytest -q -n 4 tests/integration
chaos:     ## kill daemons while messages flow
	./test chaos
campaign: dev ## the campaigns on the simulated disk, 20 minutes by default: make campaign MINUTES=60
	$(B)/python -m tests.campaign --minutes $(or $(MINUTES),20)
	$(B)/python -m tests.campaign.replication --minutes $(or $(MINUTES),20)
lives: dev ## three nsqd that replicate to each other are killed and lose their disks under load: make lives N=40
	$(B)/python -m tests.campaign.lives --starts $(or $(N),40)
client-campaign: dev ## the client under faults, a minute or T seconds of each kind: make client-campaign T=600
	$(B)/python -m tests.client_campaign --seconds $(or $(T),60)
spark-campaign: dev ## archive on a standalone Spark cluster while its processes are killed; KILLS=60 for longer
	$(B)/python -m tests.spark_campaign --kills $(or $(KILLS),30)
model: dev ## the public interface beside its model, ten minutes or T seconds of random histories: make model T=60
	$(B)/python -m tests.model --seconds $(or $(T),600)
mutants: dev ## change a module in 100 or N ways, and show the changes that its tests miss: make mutants MODULE=nsqd/log/ids.py
	for module in $(or $(MODULE),nsqd/log/recovery.py nsqd/storage/checkpoint.py nsqd/replication/claims.py); do \
		MUTANTS=$(or $(N),100) scripts/mutants $$module || exit; done
browser:   ## the admin pages in Chromium
	./test browser
spark:     ## pipelines on a local Spark
	./test spark
bench: dev ## measure nsqd; see docs/evidence/performance.md
	$(B)/python -m bench
soak: dev  ## ten minutes or T seconds of mixed load; names memory and live objects that grew: make soak T=3600
	$(B)/python -m bench.soak --seconds $(or $(T),600)
image: dev ## run the steps of the Dockerfile without a container engine
	$(B)/python scripts/image_steps.py
bare: dev  ## the README's two commands on a bare Debian, as root: make bare IN=/tmp/bare SUITE=trixie STAGES="lint fast"
	scripts/bare_system $(or $(IN),/tmp/bare-debian) $(or $(SUITE),bookworm) $(or $(STAGES),lint)
chart: dev ## lint, render and validate the Helm chart
	$(B)/pytest -q tests/deploy -m "not slow"
load: dev  ## a minute of load during which an nsqd is killed, or another profile: make load PROFILE=spike
	$(B)/nsq-load run $(or $(PROFILE),steady) --start $(if $(PROFILE),,--kill)
run:       ## the whole cluster with sample traffic
	./run
check:     ## what CI requires
	.ci/run
clean:     ## remove everything that can be made again
	rm -rf .venv .venv-newest .compiled build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
