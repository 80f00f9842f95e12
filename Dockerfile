# asrtool in a container.
#
#     docker build -t asrtool:cpu .
#     docker build -t asrtool:cuda --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130 .
#
# BASE is a Debian or Ubuntu with Python 3.10 or newer, TORCH_INDEX where its build of torch is.
ARG BASE=docker.io/library/python:3.11-slim-bookworm
FROM ${BASE}
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PATH=/opt/asrtool/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY . /src
RUN python3 -m venv /opt/asrtool \
    && pip install --extra-index-url "$TORCH_INDEX" --constraint /src/constraints/cpu.txt \
       '/src[mini,phones,s3,dask,kubernetes,simulate,onnx,parquet]' \
    && rm -rf /src \
    && useradd --create-home --uid 1000 asrtool
USER 1000
WORKDIR /work
CMD ["asrtool"]
