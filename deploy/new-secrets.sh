#!/bin/sh
# Writes deploy/.env: random passwords of the servers that docker-compose.yml starts, and what else
# it can be told. Never overwrites: databases keep the password that they were made with.
set -eu
target=${1:-$(dirname "$0")/.env}
if [ -e "$target" ]; then
  echo "$target is there already: delete it, and the volumes made with it, for new passwords" >&2
  exit 1
fi

secret() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }  # 128 bits, in letters that fit a URL

umask 077
cat >"$target" <<END
# Made by $(basename "$0"). Keep it private; git ignores it.
EVERSTEP_POSTGRES_PASSWORD=$(secret)
EVERSTEP_NATS_PASSWORD=$(secret)
EVERSTEP_NATS_SYSTEM_PASSWORD=$(secret)
EVERSTEP_S3_SECRET_KEY=$(secret)

# What is started besides the four services: PostgreSQL, NATS and S3 (servers), five agents (hosts).
COMPOSE_PROFILES=servers,hosts

# Token shards on this machine, which jobs find in /data; chips and host memory of each agent.
EVERSTEP_DATA=./corpus
EVERSTEP_CHIPS=2
EVERSTEP_SHM_SIZE=2gb

# To use servers of yours, take "servers" out above and say where they are:
# EVERSTEP_DATABASE_SERVER=postgresql://user:password@host:5432
# EVERSTEP_NATS_URL=nats://user:password@host:4222
# EVERSTEP_NATS_SYSTEM_URL=nats://system:password@host:4222
# EVERSTEP_S3_ENDPOINT=host:443
# EVERSTEP_S3_ACCESS_KEY=, and EVERSTEP_S3_SECRET_KEY above
# EVERSTEP_S3_BUCKET=everstep
# EVERSTEP_S3_SECURE=true
END
echo "wrote $target; now: export COMPOSE_ENV_FILES=$target"
