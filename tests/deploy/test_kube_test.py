"""scripts/kube-test without a cluster: its plan, its commands against fakes, its verdict on the results."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.deploy.schemas import check

PROJECT = Path(__file__).parents[2]
SCRIPT = PROJECT / "scripts" / "kube-test"

# Stands in for kubectl and helm: records its arguments, and answers like a cluster in which all goes well.
FAKE = f"""#!{sys.executable}
import json, os, pathlib, sys
folder = pathlib.Path(os.environ["FAKE_FOLDER"])
program, words = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
stdin = sys.stdin.read() if "--filename=-" in words else ""
with (folder / "asked.jsonl").open("a") as notes:
    notes.write(json.dumps([program, words, stdin]) + chr(10))
wrong = json.loads(os.environ.get("FAKE_WRONG", "{{}}"))
if program == "kubectl" and "version" in words:
    print(json.dumps({{"serverVersion": {{"gitVersion": "v1.36.0"}}}}))
elif "logs" in words:
    count = sum(1 for _ in (folder / "asked.jsonl").open())
    counts = dict(confirmed=300 * count, failed=0, received=300 * count, twice=0, missing=0)
    counts |= dict(lookups=10 * count, wrong_lookups=0, slowest_in_last_second_ms=count, last_failure="")
    print(json.dumps(counts | {{key: value * count for key, value in wrong.items() if key != "step"}}))
elif "create" in words and stdin and json.loads(stdin)["metadata"]["name"].endswith("nsqd-2"):
    sys.exit("Error from server (TooManyRequests): it would violate the pod's disruption budget")
elif "pvc" in words:
    print("\\n".join(f"persistentvolumeclaim/data-kt-nsq-nsqd-{{i}}" for i in range(3)))
elif "--set=nsqd.replicas=1" in words and any("config" in word for word in words):
    sys.exit("nsqd.replicas 1 instead of 3 together with another change of the brokers: Upgrade twice")
elif "rollout" in words and "restart" in words and wrong.get("step") == words[-1]:
    sys.exit("it does not roll")
"""


@pytest.fixture(scope="module")
def kube_test():
    spec = importlib.util.spec_from_file_location("kube_test", SCRIPT.with_name("kube_test.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["kube_test"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["kube_test"]


@pytest.fixture
def steps(kube_test, tmp_path):
    settings = kube_test.Settings(chart_before="v0", image="registry.example.com/nsq:1")
    return kube_test.plan(settings, tmp_path)


@pytest.fixture
def fakes(tmp_path):
    folder = tmp_path / "fakes"
    folder.mkdir()
    for name in ("helm", "kubectl"):
        (folder / name).write_text(FAKE)
        (folder / name).chmod(0o755)
    return folder


def run(folder, *flags, **wrong):
    environment = os.environ | {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "FAKE_FOLDER": str(folder),
        "FAKE_WRONG": json.dumps(wrong),
    }
    return subprocess.run(
        [sys.executable, SCRIPT.with_name("kube_test.py"), *flags],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def asked(folder):
    return [json.loads(line) for line in (folder / "asked.jsonl").read_text().splitlines()]


def test_plan_names_every_step_and_touches_nothing(fakes):
    done = run(fakes, "--plan", "--context=kind-kind", "--chart-before=v0")

    named = [line.partition(":")[0] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert named == [
        "install",
        "test",
        "roll-nsqd",
        "roll-nsqlookupd",
        "roll-nsqadmin",
        "kill",
        "evict",
        "scale",
        "tls",
        "roll-nsqd-tls",
        "rollback",
        "upgrade",
        "uninstall",
    ]
    assert not (fakes / "asked.jsonl").exists()
    for line in done.stdout.splitlines():
        if line.startswith("    helm"):
            assert line.startswith("    helm --kube-context=kind-kind --namespace=nsq-kube-test ")
        elif line.startswith("    kubectl"):
            assert line.startswith("    kubectl --context=kind-kind --namespace=nsq-kube-test ")
        elif line.startswith("    "):
            assert line.startswith("    openssl ")


def test_steps_run_against_healthy_cluster(fakes, tmp_path):
    report = tmp_path / "report.md"
    done = run(fakes, f"--report={report}", "--image=nsq:1")

    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split(" | ") for line in report.read_text().splitlines()[2:]]
    assert [row[1] for row in rows] == ["yes"] * 12
    loaded = [row for row in rows if row[3]]
    assert [row[0].strip("| ") for row in loaded] == [
        "roll-nsqd",
        "roll-nsqlookupd",
        "roll-nsqadmin",
        "kill",
        "evict",
        "scale",
        "roll-nsqd-tls",
    ]
    # Some messages confirmed, none failed, none missing.
    assert all(int(row[3]) > 0 and row[4:6] == ["0", "0"] for row in loaded)
    # The slowest publish is that of the step.
    assert len({row[9] for row in loaded}) == len(loaded)
    # The load was started for each kind of connection, and the namespace was deleted at the end.
    jobs = [json.loads(stdin) for _, words, stdin in asked(fakes) if "apply" in words]
    assert [each["metadata"]["name"] for each in jobs if each["kind"] == "Job"] == ["load", "load"]
    assert asked(fakes)[-1][1][1:4] == ["delete", "namespace", "nsq-kube-test"]


@pytest.mark.parametrize(
    ("wrong", "lookups_count", "sentence"),
    [
        ({}, True, ""),
        (
            {"failed": 3, "failed_by_kind": {"http": 2, "raw": 1}, "last_failure": "raw 7: closed"},
            False,
            "3 publishes failed (http 2, raw 1), the last of them raw 7: closed",
        ),
        ({"missing": 1000}, False, "1000 messages that were confirmed have not arrived"),
        ({"wrong_lookups": 2}, True, "2 of 9 lookups were wrong"),
        ({"wrong_lookups": 2}, False, ""),
    ],
)
def test_step_fails_by_its_metrics(kube_test, wrong, lookups_count, sentence):
    counts = dict.fromkeys(("failed", "missing", "wrong_lookups"), 0)
    counts |= {"confirmed": 9, "lookups": 9, "last_failure": "", "failed_by_kind": {}}

    assert (
        kube_test.judge(kube_test.Step("a", "b", (), lookups_count=lookups_count), counts | wrong, 300)
        == sentence
    )


@pytest.mark.parametrize(("kind", "passes"), [("raw", True), ("lookupd", False), ("service-retry", False)])
def test_producers_without_retries_may_fail_when_broker_is_killed(kube_test, kind, passes):
    figures = {"failed": 1, "failed_by_kind": {kind: 1}, "last_failure": "", "missing": 0}

    assert (kube_test.judge(kube_test.Step("a", "b", (), killed=True), figures, 300) == "") == passes


def test_step_that_fails_is_in_report_and_in_exit_code(fakes):
    done = run(fakes, "--only=roll-nsqd", step="statefulset/kt-nsq-nsqd")

    assert (done.returncode, "it does not roll" in done.stdout) == (1, True)


def test_steps_can_be_chosen_and_wrong_name_is_refused(fakes):
    done = run(fakes, "--only=roll-nsqlookupd", "--keep")

    assert done.returncode == 0
    assert [line.split(" | ")[0] for line in done.stdout.splitlines() if line.startswith("| ")][1:] == [
        "| install",
        "| roll-nsqlookupd",
    ]
    assert "no such step: rol" in run(fakes, "--only=rol").stderr


def test_values_of_every_step_are_taken_by_chart(chart, steps):
    rendered = 0
    for step in steps:
        for command in step.commands:
            given = [word.removeprefix("--") for word in command.words if word.startswith("--set")]
            if given and "before" not in str(command):
                values: dict = {}
                for flag, path, value in (each.split("=", 2) for each in given):
                    place = values
                    *above, last = path.split(".")
                    for key in above:
                        place = place.setdefault(key, {})
                    read = value if flag == "set-string" else yaml.safe_load(value)
                    place[last] = value.strip("{}").split(",") if value.startswith("{") else read
                chart.render(values, name="kt", namespace="nsq-kube-test")
                rendered += 1
    assert rendered >= 4


@pytest.mark.parametrize("version", ["1.30", "1.37"])
@pytest.mark.parametrize("tls", [False, True])
def test_applied_manifests_are_valid_and_restricted(kube_test, version, tls):
    settings = kube_test.Settings(image="nsq:1")
    job = json.loads(kube_test.load_job(settings, tls=tls))
    items = json.loads(kube_test.auth_server(settings))["items"]

    for thing in [job, *items]:
        check(thing, version)
    for pod in (job["spec"]["template"]["spec"], items[0]["spec"]):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["containers"][0]["securityContext"]["allowPrivilegeEscalation"] is False


def test_load_understands_its_command_line(kube_test):
    for tls in (False, True):
        job = json.loads(kube_test.load_job(kube_test.Settings(), tls=tls))
        (container,) = job["spec"]["template"]["spec"]["containers"]
        words = [sys.executable, *container["command"][1:], *container["args"], "--seconds=oh"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)

        # The load complains of the one wrong argument only.
        assert "seconds" in done.stderr
        assert "unrecognized" not in done.stderr
