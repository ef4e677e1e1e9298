# One small image for every service: `python -m services.<name>` is the container's command (docker-compose.yml).
FROM python:3.12-slim AS packages
COPY infra/requirements.lock /tmp/requirements.lock
RUN python -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --only-binary :all: --require-hashes \
      -r /tmp/requirements.lock

# The cores, and what they call, compiled (infra/DECISIONS.md 18). Nothing of the compiler reaches the image.
FROM packages AS compiled
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY infra/compile.lock /tmp/compile.lock
RUN /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --only-binary :all: --require-hashes \
      -r /tmp/compile.lock
COPY pyproject.toml setup.py LICENSE NOTICE /src/
COPY schemas /src/schemas
COPY largesse /src/largesse
COPY services /src/services
COPY examples /src/examples
WORKDIR /src
RUN LARGESSE_COMPILE=1 /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation \
      --target /app .

FROM python:3.12-slim
# /archive: a volume with the archive of the log. /data: what an agent keeps of its tasks, in the container itself. /shared: a volume of all nodes, of the same user.
# /mqtt: where each volume with passwords of the compose profile `edge` is mounted when they are made.
RUN useradd --uid 10001 --create-home --home-dir /home/largesse largesse \
 && mkdir -p /archive /data /shared /mqtt/broker /mqtt/bridge /mqtt/edge-a /mqtt/edge-b \
 && chown -R largesse:largesse /archive /data /shared /mqtt \
 && printf '#!/bin/sh\nexec python -m services.cli.main "$@"\n' >/usr/local/bin/largesse \
 && chmod 755 /usr/local/bin/largesse
COPY --from=packages /opt/venv /opt/venv
COPY --from=compiled /app /app
COPY infra/image/healthy /usr/local/bin/healthy
ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/app \
    PYTHONDONTWRITEBYTECODE=1 \
    LARGESSE_LOG_FORMAT=json \
    LARGESSE_METRICS_HOST=0.0.0.0 \
    LARGESSE_METRICS_PORT=9464
ARG COMMIT=
RUN python -m compileall -q /app && if [ -n "$COMMIT" ]; then echo "$COMMIT" >/app/services/cli/commit.txt; fi
WORKDIR /home/largesse
USER largesse
EXPOSE 9464
HEALTHCHECK --interval=5s --timeout=5s --start-period=120s --retries=6 CMD ["healthy"]
ENTRYPOINT ["python", "-m"]
CMD ["services.gateway"]
