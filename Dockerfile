# Two stages: the first builds a wheel and installs it into a virtual environment, the second holds that and nothing
# else. scripts/image-steps runs these very lines without a container engine, so keep to the instructions it knows.

# The Python the test suite runs with.
ARG PYTHON_VERSION=3.11

# Not the slim one: nsqd's hot path is compiled, see setup.py.
FROM python:${PYTHON_VERSION} AS build
WORKDIR /src
COPY pyproject.toml setup.py README.md LICENSE ./
COPY nsqcore nsqcore
COPY nsqd nsqd
COPY nsqlookupd nsqlookupd
COPY nsqadmin nsqadmin
COPY nsqtools nsqtools
COPY devcluster devcluster
COPY pipelines pipelines
RUN NSQD_COMPILE=1 python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .
# Without pip of its own: the image installs nothing later.
RUN python -m venv --without-pip /opt/nsq
RUN python -m pip --python /opt/nsq/bin/python install --no-cache-dir /wheels/*.whl
RUN mkdir /data

# Another image, for nsq-archive: docker build --target archive. It has Spark, and the Java that Spark runs on.
FROM build AS build-archive
RUN for wheel in /wheels/*.whl; do python -m pip --python /opt/nsq/bin/python install --no-cache-dir "$wheel[spark]"; done

FROM python:${PYTHON_VERSION}-slim AS archive
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
RUN /opt/nsq/bin/python -m pipelines.jobs.class_data
# Spark writes below /tmp, the job wherever it is told to.
ENV PATH=/opt/nsq/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
VOLUME /data
WORKDIR /data
CMD ["nsq-archive", "--help"]

# The last stage is what is built without --target.
FROM python:${PYTHON_VERSION}-slim
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
