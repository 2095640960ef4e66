#!/usr/bin/env python3
"""Install the chart on a cluster, change it as operators do, and count every message during that.

Any context works (kind, k3d, a real cluster). It needs helm, kubectl and openssl, an image that the nodes
have or can pull, and a StorageClass. It creates a namespace and removes it at the end. A failed publish is
a fault like a lost message, because the load's producer never retries. Without a cluster it runs the tests
that need none: rendering, the schemas of the oldest and the newest Kubernetes, and the daemons' part of each
step with processes.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

PROJECT: Final = Path(__file__).resolve().parent.parent
CHART: Final = PROJECT / "deploy" / "helm" / "nsq"
TOOLS: Final = ("helm", "kubectl")
WITHOUT_CLUSTER: Final = ("tests/deploy", "tests/unit/nsqtools/kube", "tests/chaos/test_rolls.py")

# How long kubectl and helm wait for a rolling update of three brokers that drain for a minute on slow disks.
PATIENCE: Final = "900s"
LOAD: Final = "load"

# These producers of the load publish a message again elsewhere when a broker ends without an answer.
RETRYING: Final = ("lookupd", "service-retry")

# A lookup that names fewer brokers is wrong, except while one of them is away.
BROKERS: Final = 3


class StepFailed(Exception):
    """The cluster did not do what the step expects; the text says what went wrong."""


@dataclass(frozen=True)
class Settings:
    context: str = ""
    namespace: str = "nsq-kube-test"
    release: str = "kt"
    image: str = "nsq-cluster:0.1.0"
    chart_before: str = ""
    rate: int = 300
    only: tuple[str, ...] = ()
    keep: bool = False

    @property
    def name(self) -> str:
        """The prefix of the release's objects."""
        return f"{self.release}-nsq"

    def helm(self, *words: str) -> list[str]:
        context = [f"--kube-context={self.context}"] if self.context else []
        return ["helm", *context, f"--namespace={self.namespace}", *words]

    def kubectl(self, *words: str) -> list[str]:
        context = [f"--context={self.context}"] if self.context else []
        return ["kubectl", *context, f"--namespace={self.namespace}", *words]

    def values(self) -> list[str]:
        repository, _, tag = self.image.rpartition(":")
        return [
            f"--set=nsqd.replicas={BROKERS}",
            "--set=nsqd.persistence.size=1Gi",
            "--set=nsqadmin.replicas=2",
            # Passed as strings, because a tag may look like a number.
            f"--set-string=image.repository={repository}",
            f"--set-string=image.tag={tag}",
        ]

    def upgrade(self, *more: str, chart: str = str(CHART)) -> list[str]:
        wait = ["--wait", f"--timeout={PATIENCE}"]
        return self.helm("upgrade", "--install", self.release, chart, *self.values(), *wait, *more)


@dataclass(frozen=True)
class Command:
    """One command of a step, which fails unless the command ends as *expected*."""

    words: tuple[str, ...]
    stdin: str = ""
    expected: Callable[[int, str], bool] = lambda code, _: code == 0

    def __str__(self) -> str:
        return " ".join(word if " " not in word and '"' not in word else repr(word) for word in self.words)


@dataclass(frozen=True)
class Step:
    name: str
    about: str
    commands: tuple[Command, ...]
    loaded: bool = True
    """Whether the load runs."""
    lookups_count: bool = False
    """Whether a lookup that names too few brokers is wrong: while no broker is away."""
    killed: bool = False
    """Whether a broker ends without a drain: publishes under way may fail, unless the producer retries."""
    tls: bool = False


@dataclass
class Outcome:
    step: Step
    seconds: float = 0.0
    counts: dict[str, Any] = field(default_factory=dict)
    error: str = ""


def command(words: Sequence[str], **more: Any) -> Command:
    return Command(tuple(words), **more)


def refused(_: int, output: str) -> bool:
    """Say whether the PodDisruptionBudget refused the eviction with 429."""
    return "TooManyRequests" in output or "disruption budget" in output


def eviction(settings: Settings, pod: str) -> str:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": settings.namespace},
    }
    return json.dumps(body)


def evict(settings: Settings, pod: str, expected: Callable[[int, str], bool] | None = None) -> Command:
    path = f"/api/v1/namespaces/{settings.namespace}/pods/{pod}/eviction"
    words = settings.kubectl("create", f"--raw={path}", "--filename=-")
    stdin = eviction(settings, pod)
    return command(words, stdin=stdin) if expected is None else command(words, stdin=stdin, expected=expected)


def rolled(settings: Settings, kind: str, component: str) -> Command:
    what = f"{kind}/{settings.name}-{component}"
    return command(settings.kubectl("rollout", "status", what, f"--timeout={PATIENCE}"))


def load_job(settings: Settings, *, tls: bool) -> str:
    """Return the Job that puts the load on the release, as JSON."""
    host = f"{settings.name}-nsqlookupd.{settings.namespace}.svc"
    arguments = [
        f"--lookupd-http-address={host}:4161",
        f"--rate={settings.rate}",
        f"--producers={BROKERS}",
        f"--topic={'tls' if tls else 'clear'}",
    ]
    service = f"{settings.name}-nsqd.{settings.namespace}.svc:4150"
    http_service = f"{settings.name}-nsqd-http.{settings.namespace}.svc:4151"
    arguments.append(f"--nsqd-tcp-address={service}")
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []
    if tls:
        arguments += [
            "--tls",
            "--tls-root-ca-file=/etc/nsq/ca/ca.crt",
            "--auth-secret-file=/etc/nsq/auth/secret",
        ]
        for name, secret in (("ca", "kt-ca"), ("auth", "kt-auth")):
            volumes.append({"name": name, "secret": {"secretName": secret}})
            mounts.append({"name": name, "mountPath": f"/etc/nsq/{name}", "readOnly": True})
    else:
        arguments.append(f"--nsqd-http-address={http_service}")
    rights = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    container = {
        "name": LOAD,
        "image": settings.image,
        "command": ["python", "-m", "nsqtools.counted_load"],
        "args": arguments,
        "securityContext": rights,
        "volumeMounts": mounts,
    }
    pod = {
        "restartPolicy": "Never",
        "serviceAccountName": "default",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 90,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "runAsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": LOAD},
        "spec": {"backoffLimit": 0, "template": {"metadata": {"labels": {"app": LOAD}}, "spec": pod}},
    }
    return json.dumps(job)


# Every certificate of the test: one authority, one certificate for all daemons, with all their names.
AUTH_SERVER: Final = """
import http.server, json, urllib.parse
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        secret = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).get("secret", [""])[0]
        all = {"topic": ".*", "channels": [".*"], "permissions": ["publish", "subscribe"]}
        rights = [all] if secret == "kt" else []
        body = json.dumps({"ttl": 60, "identity": "kt", "authorizations": rights}).encode()
        self.send_response(200 if rights else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("", 8080), Handler).serve_forever()
"""


def auth_server(settings: Settings) -> str:
    """Return a pod that grants everything to one secret, and its Service, as JSON."""
    job = json.loads(load_job(settings, tls=False))
    spec = job["spec"]["template"]["spec"]
    container = spec["containers"][0] | {"name": "auth", "command": ["python", "-c", AUTH_SERVER], "args": []}
    labels = {"app": "kt-auth"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "kt-auth", "labels": labels},
        # Python as the first process of a container ignores SIGTERM.
        "spec": spec
        | {"containers": [container], "restartPolicy": "Always", "terminationGracePeriodSeconds": 1},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kt-auth"},
        "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [pod, service]})


def certificate_commands(settings: Settings, folder: Path) -> list[Command]:
    """Return commands that make an authority, a certificate with all names of the release, and secrets."""
    name, namespace = settings.name, settings.namespace
    hosts = []
    for service in ("nsqd", "nsqd-http", "nsqlookupd", "nsqadmin"):
        hosts += [f"{name}-{service}", f"{name}-{service}.{namespace}.svc"]
        hosts.append(f"{name}-{service}.{namespace}.svc.cluster.local")
    hosts += [f"*.{name}-{each}-headless.{namespace}.svc.cluster.local" for each in ("nsqd", "nsqlookupd")]
    extension = f"subjectAltName={','.join(f'DNS:{host}' for host in hosts)}"
    ca, key = f"{folder}/ca.crt", f"{folder}/ca.key"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    subject = ["-days", "2", "-subj", "/CN=nsq"]
    sign = ["-CA", ca, "-CAkey", key]
    own = ["-keyout", f"{folder}/tls.key", "-out", f"{folder}/tls.crt"]
    tls_files = [f"--cert={folder}/tls.crt", f"--key={folder}/tls.key"]
    return [
        command(
            ["openssl", "req", "-x509", *curve, "-days", "2", "-subj", "/CN=kt", "-keyout", key, "-out", ca]
        ),
        command(["openssl", "req", "-x509", *curve, *subject, "-addext", extension, *sign, *own]),
        command(settings.kubectl("create", "secret", "generic", "kt-ca", f"--from-file=ca.crt={ca}")),
        command(settings.kubectl("create", "secret", "tls", "kt-tls", *tls_files)),
        command(settings.kubectl("create", "secret", "generic", "kt-auth", "--from-literal=secret=kt")),
        command(settings.kubectl("apply", "--filename=-"), stdin=auth_server(settings)),
        command(settings.kubectl("wait", "pod/kt-auth", "--for=condition=Ready", f"--timeout={PATIENCE}")),
    ]


TLS_AND_AUTH: Final = (
    "--set=tls.caSecretName=kt-ca",
    "--set=nsqd.tls.secretName=kt-tls",
    "--set=nsqd.tls.required=tcp-https",
    "--set=nsqlookupd.tls.secretName=kt-tls",
    "--set=nsqadmin.tls.secretName=kt-tls",
    "--set=auth.secretName=kt-auth",
    # With tcp-https the HTTP port stays open.
    "--set=auth.allowCleartext=true",
    "--set=nsqd.config.auth-http-address={kt-auth:80}",
    "--set=nsqd.config.http-auth=true",
)


def plan(settings: Settings, folder: Path) -> list[Step]:
    """Return the steps in order. Unwanted steps are left out, except for the first and the last."""
    name = settings.name
    run, kube = settings.helm, settings.kubectl
    wait_ready = command(
        kube("wait", f"pod/{name}-nsqd-0", "--for=condition=Ready", f"--timeout={PATIENCE}"),
    )
    budget = command(
        kube(
            "wait",
            f"pdb/{name}-nsqd",
            "--for=jsonpath={.status.disruptionsAllowed}=1",
            f"--timeout={PATIENCE}",
        )
    )

    def roll(kind: str, component: str) -> tuple[Command, ...]:
        return (
            command(kube("rollout", "restart", f"{kind}/{name}-{component}")),
            rolled(settings, kind, component),
        )

    def drain(index: int) -> Command:
        # Services send producers to this broker until its readiness probe has failed twice.
        flags = ["--grace=15s", "--timeout=5m"]
        return command(kube("exec", f"{name}-nsqd-{index}", "--", "python", "-m", "nsqd.drain", *flags))

    tested = command(run("test", settings.release, "--logs"))
    before = settings.chart_before
    steps = [
        Step(
            "install",
            "a release of three brokers, two nsqlookupd, two nsqadmin",
            (command(settings.upgrade("--create-namespace")),),
            loaded=False,
        ),
        Step("test", "helm test: a message through every broker", (tested,), loaded=False),
        Step("roll-nsqd", "every broker is drained and replaced", roll("statefulset", "nsqd")),
        Step(
            "roll-nsqlookupd",
            "every nsqlookupd is replaced; no lookup may be wrong",
            roll("statefulset", "nsqlookupd"),
            lookups_count=True,
        ),
        Step(
            "roll-nsqadmin",
            "the web servers are replaced",
            roll("deployment", "nsqadmin"),
            lookups_count=True,
        ),
        Step(
            "kill",
            "a broker and an nsqlookupd are deleted by force; publishes under way to that broker may fail",
            (
                command(kube("delete", "pod", f"{name}-nsqd-0", "--force", "--grace-period=0")),
                rolled(settings, "statefulset", "nsqd"),
                wait_ready,
                command(kube("delete", "pod", f"{name}-nsqlookupd-0", "--force", "--grace-period=0")),
                rolled(settings, "statefulset", "nsqlookupd"),
            ),
            killed=True,
        ),
        Step(
            "evict",
            "a broker is evicted, as by the drain of its node; a second one at the same time is refused",
            (
                budget,
                evict(settings, f"{name}-nsqd-1"),
                evict(settings, f"{name}-nsqd-2", refused),
                command(kube("wait", f"pod/{name}-nsqd-1", "--for=delete", f"--timeout={PATIENCE}")),
                rolled(settings, "statefulset", "nsqd"),
                budget,
            ),
        ),
        Step(
            "scale",
            "three brokers become one, each emptied first, and three again; not with another change",
            (
                drain(2),
                drain(1),
                command(
                    settings.upgrade("--set=nsqd.replicas=1", "--set=nsqd.config.msg-timeout=3m"),
                    expected=lambda code, output: code != 0 and "Upgrade twice" in output,
                ),
                command(settings.upgrade("--set=nsqd.replicas=1")),
                command(settings.upgrade()),
                rolled(settings, "statefulset", "nsqd"),
            ),
        ),
        Step(
            "tls",
            "TLS and AUTH are switched on",
            (*certificate_commands(settings, folder), command(settings.upgrade(*TLS_AND_AUTH)), tested),
            loaded=False,
        ),
        Step(
            "roll-nsqd-tls",
            "every broker is drained and replaced, with TLS and AUTH",
            roll("statefulset", "nsqd"),
            tls=True,
        ),
        Step(
            "rollback",
            "back to the revision before",
            (command(run("rollback", settings.release, "--wait", f"--timeout={PATIENCE}")), tested),
            loaded=False,
        ),
        Step(
            "upgrade",
            f"from the chart of {before or 'an earlier commit (--chart-before)'} to this one",
            (
                command(run("uninstall", settings.release, "--wait", f"--timeout={PATIENCE}")),
                command(settings.upgrade(chart=f"{folder}/before/deploy/helm/nsq")),
                command(settings.upgrade()),
                tested,
            )
            if before
            else (),
            loaded=False,
        ),
        Step(
            "uninstall",
            "nothing of the release is left but its claims, and these go with the namespace",
            (
                command(run("uninstall", settings.release, "--wait", f"--timeout={PATIENCE}")),
                # Helm does not wait for pods that drain. It does not delete the pod of helm test.
                command(
                    kube(
                        "wait",
                        "pod",
                        f"--selector=app.kubernetes.io/instance={settings.release},app.kubernetes.io/component!=test",
                        "--for=delete",
                        f"--timeout={PATIENCE}",
                    )
                ),
                command(
                    kube(
                        "get",
                        "all",
                        f"--selector=app.kubernetes.io/instance={settings.release}",
                        "--output=name",
                    ),
                    expected=lambda code, output: (
                        code == 0 and set(output.split()) <= {f"pod/{name}-publish-consume"}
                    ),
                ),
                command(
                    kube("get", "pvc", "--output=name"),
                    expected=lambda code, output: code == 0 and len(output.split()) >= BROKERS,
                ),
                command(kube("delete", "namespace", settings.namespace, f"--timeout={PATIENCE}")),
            ),
            loaded=False,
        ),
    ]
    wanted = {"install", *settings.only} | (set() if settings.keep else {"uninstall"})
    return [step for step in steps if step.commands and (not settings.only or step.name in wanted)]


class Runner:
    """Carries out the steps, with the load running during those that ask for it."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say
        self._loaded: bool | None = None
        """Whether the load that runs speaks TLS; None while none runs."""

    def run(self, step: Step) -> Outcome:
        outcome = Outcome(step)
        began = time.monotonic()
        self._say(f"{step.name}: {step.about}")
        try:
            before = self._load(tls=step.tls) if step.loaded else self._no_load()
            for each in step.commands:
                self._do(each)
            if step.loaded:
                outcome.counts = self._between(before, self._settled(before))
                outcome.counts["slowest_publish_ms"] = self._slowest_ms(time.monotonic() - began)
                outcome.error = judge(step, outcome.counts, self._settings.rate)
        except StepFailed as failed:
            outcome.error = str(failed)
        outcome.seconds = time.monotonic() - began
        self._say(
            f"{step.name}: {outcome.error or 'passed'} in {outcome.seconds:.0f} s {outcome.counts or ''}"
        )
        return outcome

    def _do(self, each: Command) -> str:
        self._say(f"  {each}")
        try:
            done = subprocess.run(
                each.words, input=each.stdin, capture_output=True, text=True, check=False, timeout=1800
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StepFailed(f"{each.words[0]}: {error}") from error
        output = done.stdout + done.stderr
        if not each.expected(done.returncode, output):
            raise StepFailed(f"`{each}` ended with {done.returncode}: {output.strip()[-500:]}")
        return done.stdout

    def _load(self, *, tls: bool) -> dict[str, Any]:
        """Make sure that the load runs, and return its current statistics."""
        if self._loaded is not tls:
            self._no_load()
            job = load_job(self._settings, tls=tls)
            self._do(command(self._settings.kubectl("apply", "--filename=-"), stdin=job))
            ready = ["--for=jsonpath={.status.ready}=1", f"--timeout={PATIENCE}"]
            self._do(command(self._settings.kubectl("wait", f"job/{LOAD}", *ready)))
            self._loaded = tls
        return self._counts()

    def _no_load(self) -> dict[str, Any]:
        if self._loaded is not None:
            # The Job ends on deletion, and fails if any message is missing then.
            self._do(command(self._settings.kubectl("delete", "job", LOAD, f"--timeout={PATIENCE}")))
            self._loaded = None
        return {}

    def _counts(self) -> dict[str, Any]:
        words = self._settings.kubectl("logs", f"job/{LOAD}", "--tail=1")
        for _ in range(60):
            line = self._do(command(words)).strip()
            try:
                found: dict[str, Any] = json.loads(line)
            except ValueError:
                time.sleep(1)
            else:
                return found
        raise StepFailed("the load says nothing")

    def _settled(self, before: dict[str, Any]) -> dict[str, Any]:
        """Return the statistics once the messages under way have arrived, or after a minute."""
        counts = self._counts()
        for _ in range(60):
            # Some messages are always on their way while the load runs.
            if counts["missing"] <= max(before["missing"], self._settings.rate):
                break
            time.sleep(1)
            counts = self._counts()
        return counts

    def _slowest_ms(self, seconds: float) -> int:
        """Return the slowest publish of the last *seconds*."""
        words = self._settings.kubectl("logs", f"job/{LOAD}", f"--since={max(1, round(seconds))}s")
        lines = self._do(command(words)).splitlines()
        return max((json.loads(line)["slowest_in_last_second_ms"] for line in lines), default=0)

    @staticmethod
    def _between(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
        counted = ("confirmed", "failed", "twice", "lookups", "wrong_lookups")
        kinds, earlier = after.get("failed_by_kind", {}), before.get("failed_by_kind", {})
        failed = {kind: count - earlier.get(kind, 0) for kind, count in sorted(kinds.items())}
        return {key: after[key] - before.get(key, 0) for key in counted} | {
            "failed_by_kind": {kind: count for kind, count in failed.items() if count},
            "missing": after["missing"],
            "last_failure": after["last_failure"] if after["failed"] > before.get("failed", 0) else "",
        }


def judge(step: Step, counts: dict[str, Any], rate: int) -> str:
    """Return the problem in a step's statistics, or "". One second's messages may be on their way."""
    if counts["missing"] > rate:
        return f"{counts['missing']} messages that were confirmed have not arrived"
    failed = counts["failed_by_kind"]
    if any(failed.get(kind) for kind in RETRYING) or (counts["failed"] and not step.killed):
        kinds = ", ".join(f"{kind} {count}" for kind, count in failed.items())
        return f"{counts['failed']} publishes failed ({kinds}), the last of them {counts['last_failure']}"
    if step.lookups_count and counts["wrong_lookups"]:
        return f"{counts['wrong_lookups']} of {counts['lookups']} lookups were wrong"
    return ""


def report(outcomes: Sequence[Outcome]) -> str:
    """Return the result as a Markdown table."""
    lines = [
        "| step | passed | seconds | confirmed | failed | missing | twice | lookups | wrong | slowest |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in outcomes:
        counts = each.counts
        keys = ("confirmed", "failed", "missing", "twice", "lookups", "wrong_lookups")
        cells = [str(counts.get(key, "")) for key in keys]
        slowest = f"{counts['slowest_publish_ms']} ms" if counts else ""
        passed = f"**no**: {each.error}" if each.error else "yes"
        lines.append(f"| {' | '.join([each.step.name, passed, f'{each.seconds:.0f}', *cells, slowest])} |")
    return "\n".join(lines) + "\n"


def describe(steps: Sequence[Step]) -> str:
    """Return the plan as text: the steps and their commands in order."""
    lines = []
    for step in steps:
        load = f", under the load{' with TLS' if step.tls else ''}" if step.loaded else ""
        lines.append(f"{step.name}: {step.about}{load}")
        lines += [f"    {each}" for each in step.commands]
    return "\n".join(lines) + "\n"


def chart_of(commit: str, folder: Path) -> None:
    """Put the chart as it was at *commit* below ``folder/before``. Raises StepFailed."""
    (folder / "before").mkdir()
    packed = subprocess.run(
        ["git", "-C", PROJECT, "archive", commit, "deploy/helm/nsq"], capture_output=True, check=False
    )
    if packed.returncode:
        raise StepFailed(f"git knows no chart of {commit}: {packed.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", folder / "before"], input=packed.stdout, check=True)


def has_cluster(settings: Settings) -> bool:
    if any(shutil.which(tool) is None for tool in TOOLS):
        return False
    words = settings.kubectl("version", "--output=json", "--request-timeout=10s")
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
        return done.returncode == 0 and "serverVersion" in json.loads(done.stdout)
    except (ValueError, subprocess.TimeoutExpired):
        return False


def without_cluster() -> int:
    print(
        "There is no cluster (or no helm, or no kubectl): what can be tried without one is tried.", flush=True
    )
    words = [sys.executable, "-m", "pytest", "-q", *WITHOUT_CLUSTER]
    return subprocess.run(words, cwd=PROJECT, check=False).returncode


def main(argv: Sequence[str] | None = None) -> int:
    defaults = Settings()
    parser = argparse.ArgumentParser(prog="kube-test", description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--context", default="", help="of the kubeconfig; the current one unless given")
    add("--namespace", default=defaults.namespace, help="is made, and removed at the end")
    add("--release", default=defaults.release, help="name of the release")
    add(
        "--image",
        default=defaults.image,
        metavar="REPOSITORY:TAG",
        help="the image that the nodes have or can pull",
    )
    add(
        "--chart-before",
        default="",
        metavar="COMMIT",
        help="the chart to upgrade from; left out unless given",
    )
    add("--rate", type=int, default=defaults.rate, help="publishes each second")
    add("--only", default="", metavar="STEP,...", help="these steps; install and uninstall always")
    add("--keep", action="store_true", help="leave the release there at the end")
    add("--report", type=Path, metavar="FILE", help="write the table there as well")
    add("--plan", action="store_true", help="print what would be done, and do nothing")
    given = parser.parse_args(argv)
    settings = Settings(
        context=given.context,
        namespace=given.namespace,
        release=given.release,
        image=given.image,
        chart_before=given.chart_before,
        rate=given.rate,
        only=tuple(filter(None, given.only.split(","))),
        keep=given.keep,
    )
    with tempfile.TemporaryDirectory(prefix="kube-test-") as temporary:
        folder = Path(temporary)
        steps = plan(settings, folder)
        unknown = set(settings.only) - {step.name for step in plan(Settings(chart_before="x"), folder)}
        if unknown:
            parser.error(f"no such step: {', '.join(sorted(unknown))}")
        if given.plan:
            print(describe(steps), end="")
            return 0
        if not has_cluster(settings):
            return without_cluster()
        try:
            if settings.chart_before:
                chart_of(settings.chart_before, folder)
        except StepFailed as failed:
            print(f"kube-test: {failed}", file=sys.stderr)
            return 2
        runner = Runner(settings, lambda text: print(text, flush=True))
        outcomes = []
        for step in steps:
            outcomes.append(runner.run(step))
            if outcomes[-1].error and step.name == "install":
                break
    table = report(outcomes)
    print(f"\n{table}", end="")
    if given.report:
        given.report.write_text(table)
    return int(any(each.error for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
