"""The manifests in deploy/ and compose.yaml are valid, and say what the Dockerfile and the server say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from bitedge.cli.serve import add_arguments

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "deploy" / name).read_text()))


def check_options(words: list[str]) -> None:
    """The server understands these arguments."""
    import argparse

    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    parser.parse_args(words)


@pytest.mark.parametrize("document", documents("kubernetes.yaml"), ids=lambda document: str(document["kind"]))
def test_kubernetes_manifests_follow_the_schema(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_the_schema_can_refuse() -> None:
    document = documents("kubernetes.yaml")[0]
    document["spec"]["template"]["spec"]["containers"][0]["imagee"] = "typo"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_the_deployment_is_hardened_and_probed() -> None:
    deployment, service, scaler, budget = documents("kubernetes.yaml")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    check_options(container["args"])
    drain = float(container["args"][container["args"].index("--drain-seconds") + 1])
    assert pod["terminationGracePeriodSeconds"] > drain + container["lifecycle"]["preStop"]["sleep"]["seconds"]
    (key,) = [entry["valueFrom"]["secretKeyRef"] for entry in container["env"]]
    assert "--require-auth" in container["args"]
    assert "optional" not in key, "defect 3: a missing secret opened the service"
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    for selector in (service["spec"]["selector"], budget["spec"]["selector"]["matchLabels"]):
        assert selector.items() <= labels
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]


def test_kserve_manifests_follow_their_schema() -> None:
    schema = json.loads((HERE / "kserve_schema.json").read_text())
    runtime, service = documents("kserve.yaml")
    for document in (runtime, service):
        jsonschema.validate(document, schema)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x"},
        "spec": {"containers": runtime["spec"]["containers"]},
    }
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    check_options(runtime["spec"]["containers"][0]["args"])
    model = service["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["modelFormat"]["name"] in {row["name"] for row in runtime["spec"]["supportedModelFormats"]}
    runtime["spec"]["container"] = runtime["spec"].pop("containers")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(runtime, schema)


def test_compose_is_hardened() -> None:
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["bitedge"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    check_options(service["command"])


def test_the_dockerfile_ends_slim_and_without_root() -> None:
    text = (ROOT / "Dockerfile").read_text()
    last = text[text.rindex("\nFROM ") :]
    assert "USER 10001" in last
    assert "RUN " not in last, "the last stage only copies"
    assert 'ENTRYPOINT ["bitedge", "serve"]' in last
    assert (ROOT / ".dockerignore").read_text().splitlines()[1] == "*"
    check_options(json.loads(last[last.index("\nCMD ") + 5 :].splitlines()[0]))


def metric_names() -> set[str]:
    """Every series that the service exposes."""
    from prometheus_client.parser import text_string_to_metric_families

    from bitedge.serve.observability.metrics import Metrics

    families = list(text_string_to_metric_families(Metrics().exposition().decode()))
    histograms = {f"{family.name}{end}" for family in families for end in ("_bucket", "_sum", "_count")}
    return {family.name for family in families} | {f"{family.name}_total" for family in families} | histograms


def test_dashboard_alerts_and_scaling_use_metrics_that_exist() -> None:
    dashboard = json.loads((ROOT / "deploy" / "grafana-dashboard.json").read_text())
    (alerts,) = documents("prometheus-alerts.yaml")
    (adapter,) = documents("prometheus-adapter.yaml")
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    expressions += [rule["seriesQuery"] for rule in adapter["rules"]["custom"]]
    used = {name for text in expressions for name in re.findall(r"(?:bitedge|process)_\w+", text)}
    assert len(used) > 12
    assert used <= metric_names()
    scaled = adapter["rules"]["custom"][0]["name"]["as"]
    for text in ("kubernetes.yaml", "helm/bitedge/templates/bitedge.yaml"):
        assert scaled in (ROOT / "deploy" / text).read_text()


def test_the_chart_says_what_the_manifests_say() -> None:
    """Where helm is installed, `helm template` is validated; without it, the plain parts are compared."""
    chart = ROOT / "deploy" / "helm" / "bitedge"
    if shutil.which("helm"):
        command = ["helm", "template", "x", str(chart), "--set", "grpc.enabled=true"]
        rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        for document in yaml.safe_load_all(rendered):
            kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    text = (chart / "templates" / "bitedge.yaml").read_text()
    assert yaml.safe_load((chart / "Chart.yaml").read_text())["apiVersion"] == "v2"
    values = yaml.safe_load((chart / "values.yaml").read_text())
    used = {name.split(".")[0] for name in re.findall(r"\.Values\.([\w.]+)", text)}
    assert used == set(values)
    assert text.count("{{- if") + text.count("{{- range") == text.count("{{- end }}")
    arguments = re.search(r"args: (\[.*\])", text)
    assert arguments is not None
    check_options(json.loads(arguments[1]))
    deployment = documents("kubernetes.yaml")[0]["spec"]["template"]["spec"]["containers"][0]
    assert json.loads(arguments[1]) == deployment["args"]
