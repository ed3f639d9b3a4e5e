#!/usr/bin/env bash
# The trial on Google: a checklist that prints its results. docs/gke.md describes what it needs.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
checks="services quotas node-account gpu notice preemption removal stockout quota leftovers ledger"

usage() {
  cat <<USAGE
Usage: gke-trial.sh --fleet FILE [options]

Checks on Google what a simulator cannot show, and prints PASS, FAIL or SKIP with the measured values.
It needs gcloud (logged in), a running master of the fleet at TRADEWIND_API_URL, and an image with CUDA.
It stops its job and deletes its pools when it ends, even after an error or Ctrl-C. It can be repeated.

  --fleet FILE            the fleet file of the master
  --only CHECK            run only this check; may be given several times
  --dry-run               change nothing: each check stops before its first change
  --max-usd N             the spending limit (default 50); the trial does not start if the worst case is above it
  --minutes N             the time limit (default 120)
  --scarce MACHINE/GPU/ZONE   the machine to request in order to see a stockout
                          (default a2-highgpu-1g/nvidia-tesla-a100/us-central1-a)
  --billing-table TABLE   PROJECT.DATASET.TABLE of the billing export, for the check "ledger"
  --log FILE              the full log (default gke-trial-TIME.log in TMPDIR or in /tmp)
  --help                  show this text

Checks, in order: ${checks}

Exit codes: 0 nothing failed, 1 a check or the cleanup failed, 2 the trial could not start,
4 the money was spent or the time was over before the end.
USAGE
}

fail() {
  echo "gke-trial.sh: $1" >&2
  exit 2
}

child="" fleet="" log="${TMPDIR:-/tmp}/gke-trial-$(date +%Y%m%d-%H%M%S).log" minutes=120 dry_run=false
options=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --help) usage; exit 0 ;;
    --dry-run) dry_run=true; options+=(--dry-run); shift; continue ;;
    --fleet | --only | --max-usd | --minutes | --scarce | --billing-table | --log)
      [[ $# -ge 2 ]] || fail "$1 needs a value; see --help" ;;
    *) fail "unknown option $1; see --help" ;;
  esac
  case $1 in
    --fleet) fleet=$2 ;;
    --log) log=$2 ;;
    --minutes) minutes=$2; options+=(--minutes "$2") ;;
    --only)
      [[ " ${checks} " == *" $2 "* ]] || fail "there is no check $2; there are: ${checks}"
      options+=(--only "$2") ;;
    *) options+=("$1" "$2") ;;
  esac
  shift 2
done

[[ -n ${fleet} ]] || fail "--fleet is missing; see --help"
[[ ${minutes} =~ ^[1-9][0-9]*$ ]] || fail "--minutes must be a whole number, not ${minutes}"
command -v gcloud > /dev/null || fail "gcloud is not installed; see https://cloud.google.com/sdk/docs/install"
python=${PYTHON:-}
if [[ -z ${python} ]]; then
  python=${here}/../.venv/bin/python
  [[ -x ${python} ]] || python=$(command -v python3) || fail "there is no Python"
fi
common=(--fleet "${fleet}" --job "${GKE_TRIAL_JOB:-${here}/gke-trial.yaml}" --log "${log}" ${GKE_TRIAL_BOUNDS:+--bounds "${GKE_TRIAL_BOUNDS}"})

# shellcheck disable=SC2329 # the trap calls it
cleanup() {
  local code=$?
  trap - EXIT
  trap '' INT TERM # a second Ctrl-C must not prevent the cleanup
  if [[ -n ${child} ]]; then
    kill -TERM "${child}" 2> /dev/null || true
    wait "${child}" || true
  fi
  if [[ ${dry_run} == false && ${code} -ne 2 ]]; then
    timeout --kill-after=30 60m "${python}" -m tradewind.trial cleanup "${common[@]}" || code=1
  fi
  echo "The full log is ${log}"
  exit "${code}"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The checks run in the background, so that the script handles a signal at once and not after them.
code=0
timeout --kill-after=60 "${minutes}m" \
  "${python}" -m tradewind.trial run "${common[@]}" ${options[@]+"${options[@]}"} &
child=$!
wait "${child}" || code=$?
child=""
if [[ ${code} -eq 124 ]]; then
  echo "The time limit of ${minutes} minutes is over; the checks that are missing above did not run." | tee -a "${log}"
  code=4
fi
exit "${code}"
