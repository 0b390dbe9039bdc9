# One image a process: docker build --build-arg SERVICE=controller .
# SERVICE is controller, monitor, checkpoint_registry, host_inventory or agent.
# Only the agent's image holds torch; where there are no GPUs an index of CPU builds saves
# gigabytes: --build-arg PIP_EXTRA_INDEX_URL=URL. Build arguments stay readable in the image: an
# index that asks for a password goes into a pip.conf, --secret id=pip,src=pip.conf.
ARG SERVICE=controller

FROM python:3.11-slim AS base
ARG PIP_INDEX_URL=
ARG PIP_EXTRA_INDEX_URL=
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore \
    PYTHONUNBUFFERED=1
# A fixed id: mounts and Kubernetes' runAsUser name it.
RUN useradd --uid 10001 --user-group --create-home everstep
WORKDIR /srv/everstep
COPY constraints.txt pyproject.toml README.md ./

# What the extras bring in changes rarely: a layer of its own, made from an empty everstep.
FROM base AS services-installed
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    pip install -c constraints.txt '.[services]'

FROM base AS agent-installed
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    pip install -c constraints.txt torch==2.13.0 && pip install -c constraints.txt '.[worker]'

FROM services-installed AS services
COPY lib lib
COPY services services
COPY worker worker
COPY sim sim
COPY cli cli
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    pip install --no-deps --force-reinstall .
USER everstep
WORKDIR /home/everstep
ENV EVERSTEP_HTTP_HOST=0.0.0.0 EVERSTEP_HTTP_PORT=8080
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=3s --retries=12 CMD ["python", "-c", \
    "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/readyz', timeout=2)"]

FROM services AS controller
CMD ["python", "-m", "everstep.controller"]

FROM services AS monitor
CMD ["python", "-m", "everstep.monitor"]

FROM services AS checkpoint_registry
CMD ["python", "-m", "everstep.checkpoint_registry"]

FROM services AS host_inventory
CMD ["python", "-m", "everstep.host_inventory"]

FROM agent-installed AS agent
COPY lib lib
COPY services services
COPY worker worker
COPY sim sim
COPY cli cli
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    pip install --no-deps --force-reinstall . && \
    install -d -o everstep -g everstep -m 0700 /run/everstep
COPY deploy/agent.sh /usr/local/bin/everstep-agent
USER everstep
WORKDIR /home/everstep
ENV EVERSTEP_RUN_DIR=/run/everstep EVERSTEP_MEMORY_DIR=/dev/shm/everstep
HEALTHCHECK --interval=5s --timeout=3s --retries=12 CMD ["everstep-agent", "--healthy"]
CMD ["everstep-agent"]

FROM ${SERVICE}
