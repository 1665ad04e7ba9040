# make train   set up everything and train one real GRPO step of the medical SQL agent
# make test    set up everything and run the tests
# make help    the other commands
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
PY := .venv/bin/python
ARGS ?= --ci-fast
FOLDER ?= .cache/reward_model
SHAPE ?= qwen3
LAYERS ?= 0
# In two processes, a file in one of them, in this order: the whole job is the last, with both cores to itself.
TWO_AT_A_TIME := -n 2 --dist loadfile --no-loadscope-reorder

# Most tests talk over real sockets, some watch a clock: what failed is run once more, alone. What is broken fails twice.
AGAIN := echo "once more, alone, what failed:" && $(PY) -m pytest --last-failed --last-failed-no-failures none

TESTS = $(PY) -m pytest $(TWO_AT_A_TIME) -m "$(WHICH) and not slow and not gpu" || { [ $$? = 1 ] && $(AGAIN); }

.PHONY: help setup data tiny reward-model train demo math-demo mine test test-long test-all full-shape gpu-test judge-report site release lint format check clean

help:  ## show the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | column -t -s "$$(printf '\t')"

setup:  ## install uv privately and the locked environment into .venv
	@bash utils/setup.sh

data: setup  ## build the bundled database and questions
	@$(PY) -m sql_agent.data.build

tiny: data  ## build and warm-start the tiny policy (SEED=n)
	@$(PY) -m sql_agent.tiny_policy.build --seed $(or $(SEED),1)

reward-model: setup  ## train and calibrate the small reward model (FOLDER=.cache/reward_model)
	@bash utils/train_reward_model.sh $(FOLDER)

train: setup  ## train one step: store, data, model, GRPO, summary (ARGS="--ci")
	@.venv/bin/agentgrpo train $(ARGS)

demo: setup  ## train the tiny policy and measure it before and after (SEED=n)
	@.venv/bin/agentgrpo demo --seed $(or $(SEED),1)

math-demo: setup  ## the same with the math agent, its tools and its own tiny policy
	@.venv/bin/agentgrpo demo --recipe math_cpu --seed $(or $(SEED),1)

mine: ARGS =
mine: setup  ## an agent for a database of your own (DB=shop.db, ARGS="--language zh")
	@.venv/bin/agentgrpo mine $(DB) $(ARGS)

test: WHICH := not long
test: setup  ## the tests, all but those that take long
	@$(TESTS)

test-long: WHICH := long
test-long: setup  ## those that take seconds to a minute each
	@$(TESTS)

test-all: test test-long  ## all tests, the expensive extras too
	@$(PY) -m pytest -m "slow and not gpu"

full-shape: data  ## one step of a model's shape on this CPU, real vocabulary and templates (SHAPE=qwen3_5, LAYERS=4)
	@$(PY) -m recipes.full_shape.model --shape $(SHAPE) --layers $(LAYERS)
	@$(PY) -m pytest -s tests/drills/test_full_shape.py

gpu-test: setup  ## what needs a GPU: a step of each GPU recipe, and the update against the CPU's
	@$(PY) -m pytest -s -m gpu tests/gpu

judge-report: ARGS =
judge-report: setup  ## measure the judges on judged answers (ARGS="--items FILE")
	@.venv/bin/agentgrpo judge-report $(ARGS)

site: setup  ## these pages as a site in site/, whose links all lead somewhere
	@UV_PROJECT_ENVIRONMENT=.cache/docs .tools/bin/uv sync -q --frozen --python $(PY) --only-group docs --no-install-project
	@.cache/docs/bin/python docs/build_site.py site

release: setup  ## wheel, source, locked requirements and SBOM, in dist/
	@bash utils/release.sh dist

lint: setup  ## ruff and pyright
	@.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/pyright

format: setup  ## format the code
	@.venv/bin/ruff check --fix . && .venv/bin/ruff format .

check: setup  ## print a diagnosis of this machine
	@$(PY) utils/check_install.py

clean:  ## remove built data, the tiny policy and the environment (runs/ stays)
	rm -rf .venv .tools .cache sql_agent/data/medical.db sql_agent/data/*.parquet sql_agent/data/qa_dataset.jsonl
