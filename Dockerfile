# One image for web, workers and migrate; compose.yaml says which part a container plays.
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
RUN python -m venv /opt/archiver
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY archiver archiver
COPY workers workers
COPY connectors connectors
COPY migrations migrations
RUN /opt/archiver/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt .

FROM python:3.11-slim-bookworm
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin archiver \
    && install -d -o archiver -g archiver -m 0700 /data
COPY --from=build /opt/archiver /opt/archiver
ENV PATH=/opt/archiver/bin:$PATH PYTHONUNBUFFERED=1 ARCHIVER_DATA=/data ARCHIVER_HOST=0.0.0.0
USER archiver
WORKDIR /data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/healthz', timeout=5)"]
CMD ["archiver", "web"]
