# bitedge serve in a small container.
#
#   docker build -t bitedge .
#   docker run --rm -p 8080:8080 --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges bitedge
#   docker run ... -v /my/models:/models:ro bitedge
#
# BUILD_IMAGE needs Python, pip and apt (or a C++ compiler); BASE_IMAGE needs the same Python and nothing else.
# Pin them by digest where builds must be reproducible.
ARG BUILD_IMAGE=python:3.12-slim-bookworm
ARG BASE_IMAGE=python:3.12-slim-bookworm

FROM ${BUILD_IMAGE} AS build
RUN command -v c++ >/dev/null || (apt-get update && apt-get install -y --no-install-recommends g++)
WORKDIR /source
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY runtime runtime
COPY train/bitedge train/bitedge
COPY export/bitedge export/bitedge
COPY serve/bitedge serve/bitedge
COPY cli/bitedge cli/bitedge
# The wheel with its compiled core, and an environment with it and the `serve` extra alone: no compiler, no pip.
RUN python3 -m venv /build && /build/bin/pip install --no-cache-dir --upgrade pip \
    && /build/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .
RUN python3 -m venv --without-pip /opt/bitedge \
    && /build/bin/pip --python /opt/bitedge/bin/python install --no-cache-dir --no-compile --constraint constraints.txt \
       "bitedge[serve] @ file://$(ls /wheels/bitedge-*.whl)" \
    && find /opt/bitedge -type d \( -name tests -o -name __pycache__ -o -name include \) -prune -exec rm -rf {} + \
    && find /opt/bitedge -name '*.pyi' -delete \
    && find /opt/bitedge -path '*/uvloop/*.so' -exec strip --strip-unneeded {} +

FROM ${BASE_IMAGE}
ARG MODELS=deploy/models
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="bitedge" \
      org.opencontainers.image.description="Classifies images with binarized neural networks over HTTP" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/bitedge /opt/bitedge
COPY ${MODELS} /models
ENV PATH=/opt/bitedge/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/healthz', timeout=2)"]
ENTRYPOINT ["bitedge", "serve"]
CMD ["/models", "--host", "0.0.0.0", "--port", "8080"]
