#!/bin/sh
# Runs the agent of a host that is a container. An agent that dies is started again beside its
# ranks, which train on and are taken up by the next one; if the container ended with it, the host
# would be lost. One that dies at once is left to the container's restart policy, which waits longer
# each time.
#
#   agent.sh            run
#   agent.sh --healthy  say whether an agent runs
set -u
LIVED_S_MIN=10  # a wrong setting or a missing directory shows within this time

if [ "${1:-}" = --healthy ]; then
  pid=$(cat "$EVERSTEP_RUN_DIR/agent.pid") && exec kill -0 "$pid"
  exit 1
fi

stopping=
trap 'stopping=1; kill -TERM "$agent" 2>/dev/null' TERM INT
while :; do
  began_s=$(date +%s)
  python -m everstep.agent &
  agent=$!
  wait "$agent"
  code=$?
  while kill -0 "$agent" 2>/dev/null; do  # a signal to this script ended the wait, not the agent
    wait "$agent"
    code=$?
  done
  if [ -n "$stopping" ] || [ "$code" -eq 0 ] || [ $(($(date +%s) - began_s)) -lt "$LIVED_S_MIN" ]
  then
    exit "$code"
  fi
  echo "the agent ended with code $code: starting it again" >&2
done
