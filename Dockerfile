# One image for web, workers and migrate; compose.yaml says which part a container plays.
# By digest: docker build --build-arg PYTHON_IMAGE=python:3.11-slim-bookworm@sha256:… (SECURITY.md says how to find it).
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
RUN python -m venv /opt/archiver
COPY pyproject.toml setup.py requirements.lock README.md LICENSE ./
RUN /opt/archiver/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.lock
# Google's client describes every API of Google, in 110 MB; two are used.
RUN find /opt/archiver/lib -path '*/discovery_cache/documents/*.json' ! -name gmail.v1.json ! -name admin.directory_v1.json -delete
COPY archiver archiver
COPY workers workers
COPY connectors connectors
COPY migrations migrations
RUN /opt/archiver/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation .

FROM ${PYTHON_IMAGE}
# For OCR: English, and what finds the way a page is turned. More languages: --build-arg OCR_PACKAGES="tesseract-ocr tesseract-ocr-deu".
ARG OCR_PACKAGES="tesseract-ocr"
# For exports as PDF: letters of most scripts, and of Chinese, Japanese and Korean.
ARG FONT_PACKAGES="fonts-dejavu-core fonts-droid-fallback"
RUN apt-get update && apt-get install --yes --no-install-recommends ${OCR_PACKAGES} ${FONT_PACKAGES} && rm -rf /var/lib/apt/lists/*
RUN groupadd --system --gid 10001 archiver \
    && useradd --system --uid 10001 --gid archiver --home-dir /data --shell /usr/sbin/nologin archiver \
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
