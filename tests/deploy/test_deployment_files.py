"""The files in ``deploy/`` name commands, settings, ports and probes that exist."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from vaka.cli.commands.serve import serve
from vaka.config.server_tables import ServerTable
from vaka.config.setting_keys import SETTING_KEYS, parse_settings_text
from vaka.server.health import PROBE_PATHS, READY_SECONDS

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCKERFILE = (DEPLOY / "docker" / "Dockerfile").read_text()
COMPOSE: Any = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())
OBJECTS: list[Any] = list(yaml.safe_load_all((DEPLOY / "k8s" / "server.yaml").read_text()))


def find_object(kind: str) -> Any:
    return next(each for each in OBJECTS if each["kind"] == kind)


def parse_serve(arguments: list[str]) -> dict[str, Any]:
    assert arguments[0] == "serve"
    return serve.make_context("serve", arguments[1:]).params


def test_the_image_runs_a_command_that_exists_as_a_user_without_rights() -> None:
    command = re.search(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert command is not None
    flags = parse_serve(json.loads(command[1]))
    assert (flags["host"], flags["port"]) == ("0.0.0.0", 8321)
    assert "EXPOSE 8321" in DOCKERFILE
    user = re.search(r"^USER (\d+)$", DOCKERFILE, re.MULTILINE)
    assert user is not None
    assert f"--uid {user[1]} " in DOCKERFILE
    extras = re.search(r"'\.\[([a-z,]+)\]'", DOCKERFILE)
    assert extras is not None
    project = (DEPLOY.parent / "pyproject.toml").read_text()
    assert all(f"\n{extra} = [" in project for extra in extras[1].split(","))


def test_the_health_check_of_the_image_asks_for_a_probe() -> None:
    lines = DOCKERFILE.replace("\\\n", " ")
    check = re.search(r"^HEALTHCHECK .* CMD (\[.*\])$", lines, re.MULTILINE)
    assert check is not None
    assert re.findall(r"http://127\.0\.0\.1:8321(/\w+)", json.loads(check[1])[-1]) == ["/readyz"]


def test_compose_starts_a_server_with_settings_that_exist() -> None:
    server = COMPOSE["services"]["server"]
    assert parse_serve(server["command"])["workers"] == 2
    named = {name for name in server["environment"] if name.startswith("VAKA_")}
    assert named <= {key.variable for key in SETTING_KEYS.values()} | {"VAKA_SERVER_PEPPER"}
    assert all(port.startswith("127.0.0.1:") for port in server["ports"])
    assert (DEPLOY / "docker" / server["build"]["context"]).resolve() == DEPLOY.parent
    assert set(COMPOSE["volumes"]) == {"data", "database", "workspace"}


def test_the_deployment_has_probes_and_time_to_drain() -> None:
    text = find_object("ConfigMap")["data"]["config.toml"]
    settings = parse_settings_text(Path("config.toml"), text)
    table = ServerTable(**settings["server"].value)
    pod = find_object("Deployment")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    program, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert (program, pod["terminationGracePeriodSeconds"] > int(seconds) + 2 * table.drain_seconds) == ("sleep", True)
    assert container["readinessProbe"]["timeoutSeconds"] > READY_SECONDS
    parse_serve(container["args"])
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        request = container[probe]["httpGet"]
        assert request["path"] in PROBE_PATHS
        assert request["httpHeaders"][0]["value"] in table.hosts
    assert container["ports"] == [{"name": "http", "containerPort": table.port}]


@pytest.mark.parametrize("kind", ["Deployment", "Service", "PodDisruptionBudget"])
def test_the_objects_select_the_same_pods(kind: str) -> None:
    selector = find_object(kind)["spec"]["selector"]
    labels = find_object("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert selector.get("matchLabels", selector) == labels


def test_secrets_come_from_a_secret() -> None:
    [container] = find_object("Deployment")["spec"]["template"]["spec"]["containers"]
    plain = {entry["name"] for entry in container["env"] if "value" in entry}
    assert plain == {"XDG_CONFIG_HOME"}


def test_the_proxy_of_the_guide_passes_the_bodies_and_long_turns_that_the_server_accepts() -> None:
    guide = (DEPLOY.parent / "docs" / "guides" / "deployment.md").read_text("utf-8")
    (proxy,) = re.findall(r"^```nginx\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    settings = dict(re.findall(r"^ +(\w+) (\S+);$", proxy, re.MULTILINE))
    assert settings["client_max_body_size"] == f"{ServerTable().max_body_mib}m"
    assert settings["proxy_read_timeout"] == "1h"
