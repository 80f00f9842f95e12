#!/usr/bin/env bash
# Run the stages of a recipe that are not done; takes the options of `asrtool run`, such as --stage 2 --stop-stage 4.
# Each recipe has a link to this file, and the folder of the link that is called says which recipe is run.
set -euo pipefail

recipe=$(cd "$(dirname "$0")" && pwd)
PATH="$recipe/../../.venv/bin:$PATH"  # the environment of the checkout goes first, if there is one

if ! command -v asrtool > /dev/null; then
    echo "error: asrtool is not installed; run \`make setup\` in the checkout" >&2
    exit 1
fi
exec asrtool run --recipe "$recipe" "$@"
