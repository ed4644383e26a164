"""What is in deploy/: complete, consistent, and as strict as it claims."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sysconfig
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import pgtrickle
from pgtrickle.observe.metrics import families as all_families
from pgtrickle.observe.state import FleetState
from pgtrickle.settings import Settings

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed (extra dev)")
validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed (extra dev)")

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "pgtrickle"
KUBERNETES = "1.32"
HELM = Path(sysconfig.get_path("scripts")) / "helm"
CUSTOM = {"postgresql.cnpg.io/v1", "monitoring.coreos.com/v1"}  # kinds of operators, which Kubernetes does not know


def documents(text: str) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all(text) if found]


def helm(*arguments: str) -> str:
    if not HELM.exists():
        pytest.skip("helm is not installed (extra dev: helm-binary)")
    done = subprocess.run([HELM, *arguments], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def chart(*arguments: str) -> list[dict[str, Any]]:
    return documents(helm("template", "release", str(CHART), *arguments))


def of_kind(found: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (one,) = [document for document in found if document["kind"] == kind]
    return one


def check_manifests(found: list[dict[str, Any]]) -> None:
    for document in found:
        if document["apiVersion"] not in CUSTOM:
            validator.validate(document, KUBERNETES, strict=True)


VARIANTS = {
    "defaults": (),
    "all options": (
        *("--set", "podMonitor.enabled=true", "--set", "sparkRemote=sc://spark:15002", "--set", "replicas=1"),
        *("--set", "settings.scheduler_interval_ms=200", "--set", "settings.log_level=debug"),
        *("--set", "http.tokenSecret=mine", "--set", "http.port=9000", "--set", "state.existingClaim=claim"),
        *("--set", "nodeSelector.disk=ssd", "--set", "podAnnotations.a=b", "--set", "image.tag=1"),
        *("--set", "servers[0].secret=a", "--set", "servers[0].key=dsn"),
        *("--set", "servers[1].secret=b", "--set", "servers[1].key=dsn"),
    ),
    "CloudNativePG": ("-f", str(DEPLOY / "cloudnativepg" / "values.yaml")),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_chart_renders_valid_manifests(name: str) -> None:
    found = chart(*VARIANTS[name])
    check_manifests(found)
    check_pod(of_kind(found, "Deployment")["spec"]["template"]["spec"])


def test_the_chart_passes_lint() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


def test_values_of_the_chart_reach_the_container() -> None:
    found = chart(*VARIANTS["all options"])
    container = of_kind(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert container["args"] == [
        "--config=/etc/pgtrickle/pgtrickle.toml",
        "run",
        "--server=$(SERVER_0)",
        "--server=$(SERVER_1)",
    ]
    environment = {e["name"]: e for e in container["env"]}
    assert environment["SERVER_1"]["valueFrom"]["secretKeyRef"] == {"name": "b", "key": "dsn"}
    assert environment["PGTRICKLE_HTTP_TOKEN"]["valueFrom"]["secretKeyRef"]["name"] == "mine"
    assert environment["PGTRICKLE_HTTP"]["value"] == "0.0.0.0:9000"
    settings = tomllib.loads(of_kind(found, "ConfigMap")["data"]["pgtrickle.toml"])
    assert settings == {"spark_remote": "sc://spark:15002", "scheduler_interval_ms": 200, "log_level": "debug"}
    assert settings.keys() <= set(Settings.__dataclass_fields__)
    assert of_kind(found, "Service")["spec"]["ports"][0]["port"] == 9000
    assert [d for d in found if d["kind"] == "Secret"] == []


@pytest.mark.parametrize("path", ["kubernetes/pgtrickle.yaml", "cloudnativepg/cluster.yaml"])
def test_manifests_are_valid(path: str) -> None:
    found = documents((DEPLOY / path).read_text())
    check_manifests(found)
    for document in found:
        if document["kind"] in ("Deployment", "Job"):
            check_pod(document["spec"]["template"]["spec"])


def test_the_manifest_and_the_chart_run_the_same_pod() -> None:
    plain = of_kind(documents((DEPLOY / "kubernetes" / "pgtrickle.yaml").read_text()), "Deployment")["spec"]
    rendered = of_kind(chart(), "Deployment")["spec"]
    for name in ("strategy", "progressDeadlineSeconds", "replicas"):
        assert plain[name] == rendered[name]
    one, other = (spec["template"]["spec"] for spec in (plain, rendered))
    for name in ("securityContext", "terminationGracePeriodSeconds", "automountServiceAccountToken"):
        assert one[name] == other[name]
    one, other = one["containers"][0], other["containers"][0]
    for name in ("securityContext", "startupProbe", "livenessProbe", "readinessProbe", "resources", "ports"):
        assert one[name] == other[name]


def test_a_cluster_of_cloudnativepg_needs_no_library() -> None:
    cluster = of_kind(documents((DEPLOY / "cloudnativepg" / "cluster.yaml").read_text()), "Cluster")
    assert "postgresql" not in cluster["spec"]  # shared_preload_libraries, parameters
    assert "imageName" not in cluster["spec"]
    assert "enableSuperuserAccess" not in cluster["spec"]


def check_pod(pod: Mapping[str, Any]) -> None:
    """What the Pod Security Standard `restricted` demands, and a root file system that nobody writes to."""
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == int(instructions()["USER"][-1].split(":")[0])
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        assert not [e for e in container["env"] if "secret" in str(e.get("value", "")).lower()]


def instructions() -> dict[str, list[str]]:
    text = (DEPLOY / "container" / "Containerfile").read_text()
    lines = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    found: dict[str, list[str]] = {}
    for line in lines.splitlines():
        if line.strip():
            name, _, rest = line.partition(" ")
            found.setdefault(name, []).append(rest.strip())
    return found


def test_the_container_runs_as_an_ordinary_user_with_a_health_check() -> None:
    found = instructions()
    assert found["USER"] == ["10001:10001"]
    assert "/healthz" in found["HEALTHCHECK"][0]
    assert found["ENTRYPOINT"] == ['["pgtrickle"]']
    assert all("slim" in base for base in found["FROM"])
    environment = dict(re.findall(r"(PGTRICKLE_\w+)=(\S+)", found["ENV"][0]))
    assert {n.removeprefix("PGTRICKLE_").lower() for n in environment} <= set(Settings.__dataclass_fields__)
    # What is copied exists, and the context lets it pass.
    passed = {line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line.startswith("!")}
    copied = [word for copy in found["COPY"] if "--from" not in copy for word in copy.split()[:-1]]
    assert set(copied) == passed
    assert all((ROOT / name).exists() for name in copied)
    assert (ROOT / ".dockerignore").readlink() == Path(".containerignore")


def test_the_compose_file_is_consistent() -> None:
    (found,) = documents((DEPLOY / "compose.yaml").read_text())
    services = found["services"]
    for service in services.values():
        for needed in service.get("depends_on", {}):
            assert needed in services
        for volume in service.get("volumes", []):
            assert volume.partition(":")[0] in found["volumes"]
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:")  # nobody else reaches them
    for name in ("install", "pgtrickle"):
        service = services[name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        build = (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).resolve()
        assert build == DEPLOY / "container" / "Containerfile"
        for variable in ("PGTRICKLE_SERVER", "PGTRICKLE_HTTP_TOKEN"):
            assert ":?" in service["environment"][variable]  # a missing secret is an error, not a default


def expressions() -> Iterator[str]:
    """Of dashboards and alert rules."""
    for dashboard in sorted(DEPLOY.glob("grafana/*.json")):
        found = json.loads(dashboard.read_text())
        yield from (target["expr"] for panel in found["panels"] for target in panel["targets"])
        yield from (variable["definition"] for variable in found["templating"]["list"] if "definition" in variable)
    for group in yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


def test_dashboards_and_rules_name_metrics_and_labels_that_exist() -> None:
    """A query of a name that nothing has is not wrong for Prometheus: it has no result."""
    families = list(all_families(FleetState(0.0)))
    names = {sample for family in families for sample in samples_of(family)}
    labels = {label for family in families for label in getattr(family, "_labelnames", ())} | {"job", "le", "instance"}
    used, used_labels = set(), set()
    for expression in expressions():
        used |= set(re.findall(r"\bpgtrickle_\w+", expression))
        used_labels |= set(re.findall(r"[{,]\s*(\w+)\s*(?:=|!=|=~|!~)", expression))
        for listed in re.findall(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)", expression):
            used_labels |= set(re.findall(r"\w+", listed))
    assert len(used) > 30
    assert used - names == set()
    assert used_labels - labels == set()


def samples_of(family: Any) -> Iterator[str]:
    endings = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
    yield from (family.name + ending for ending in endings)


def test_the_unit_is_accepted_by_systemd(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed (Debian package systemd)")
    unit = (DEPLOY / "systemd" / "pgtrickle.service").read_text()
    (tmp_path / "pgtrickle.service").write_text(
        unit.replace("/opt/pgtrickle/bin/pgtrickle", shutil.which("true") or "")
    )
    done = subprocess.run(
        [program, "verify", tmp_path / "pgtrickle.service"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    names = re.findall(r"^PGTRICKLE_(\w+)=", (DEPLOY / "systemd" / "environment.example").read_text(), re.MULTILINE)
    assert {n.lower() for n in names} - {"server"} <= set(Settings.__dataclass_fields__)


def versions() -> Iterator[tuple[str, str]]:
    (project,) = documents((ROOT / "dbt" / "dbt_project.yml").read_text())
    (found,) = documents((CHART / "Chart.yaml").read_text())
    yield "dbt", project["version"]
    yield "chart", found["version"]
    yield "application of the chart", found["appVersion"]
    changes = re.findall(r"^## \[?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    yield "changelog", changes[0]


def test_every_version_is_the_one_of_the_package() -> None:
    assert dict(versions()) == dict.fromkeys(dict(versions()), pgtrickle.__version__)
