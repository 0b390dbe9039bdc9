# One image a process: docker build --build-arg SERVICE=controller .
# SERVICE is controller, monitor, checkpoint_registry, host_inventory or agent.
# Only the agent's image holds torch; on a machine without GPUs build it with
#   --build-arg PIP_EXTRA_INDEX_URL=<an index of CPU builds>
FROM python:3.11-slim

ARG SERVICE=controller
ARG PIP_EXTRA_INDEX_URL=
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1

WORKDIR /srv/everstep
# The lock alone first: what it brings in changes rarely and is kept in its own layer.
COPY constraints.txt ./
RUN if [ "$SERVICE" = agent ]; then pip install -c constraints.txt torch==2.13.0 numpy; fi

COPY pyproject.toml README.md ./
COPY lib lib
COPY services services
COPY worker worker
COPY cli cli
RUN case "$SERVICE" in \
        agent) pip install -c constraints.txt '.[worker]' ;; \
        controller|monitor|checkpoint_registry|host_inventory) \
            pip install -c constraints.txt '.[services]' ;; \
        *) echo "no such SERVICE: $SERVICE" >&2; exit 1 ;; \
    esac

RUN useradd --create-home everstep && install -d -o everstep -m 0700 /run/everstep
USER everstep
WORKDIR /home/everstep
ENV EVERSTEP_SERVICE=$SERVICE EVERSTEP_HTTP_HOST=0.0.0.0 EVERSTEP_HTTP_PORT=8080
CMD ["sh", "-c", "exec python -m everstep.$EVERSTEP_SERVICE"]
