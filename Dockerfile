# One image for hub and workers. It brings no Redis: compose.yaml runs the official Valkey image beside it.
#     docker build -t pallas-cluster .
# A bot of your own: FROM pallas-cluster, COPY its modules to /app, set PALLAS_APP=module:app.

FROM python:3.12-slim AS build
WORKDIR /src
RUN python -m venv /venv
COPY . .
RUN /venv/bin/pip install --no-cache-dir --disable-pip-version-check '.[fast]'

FROM python:3.12-slim
RUN groupadd --system --gid 10001 pallas \
    && useradd --system --uid 10001 --gid pallas --home-dir /app --shell /usr/sbin/nologin pallas \
    && install -d -o pallas -g pallas /app /data
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONUNBUFFERED=1 \
    PALLAS_HOST=0.0.0.0 \
    PALLAS_DATA_DIR=/data \
    HEALTH_PORT=8088
USER pallas
WORKDIR /app
VOLUME /data
EXPOSE 8088 8090
# A hub listens on 8088, worker K on 8090+K: a service sets HEALTH_PORT to its own.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['HEALTH_PORT'] + '/healthz', timeout=2)"]
# SIGTERM reaches the process itself and drains it; it starts no children, so no init is needed.
STOPSIGNAL SIGTERM
ENTRYPOINT ["pallas"]
CMD ["hub"]
