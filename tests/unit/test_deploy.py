"""Files in deploy/: each is what its program takes, as far as that can be told without an engine or a cluster.

Every `isthmus` command line in them is parsed by the real command, every configuration is loaded, `systemd-analyze`
judges the units, bash the entry point. Kubernetes' manifests have a file of their own.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from packaging.requirements import Requirement

from isthmus.cli.app import app
from isthmus.config.load import load
from isthmus.config.tunnelfile import read_end

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
YAML = sorted(path for path in DEPLOY.rglob("*.yaml") if path.name != "site.yaml")  # it lists roles of that name
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SYSTEMD = shutil.which("systemd-analyze")


def documents(path: Path) -> list[Any]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each is not None]


# --- command lines ----------------------------------------------------------------------------


def _lists(value: object) -> Iterator[list[str]]:
    """Every list of words in a document."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _lists(each)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(each)


def commands_of(path: Path) -> Iterator[list[str]]:
    """Words after `isthmus`, of lists, of units, of what a playbook validates by, and of code in documentation."""
    if path.suffix == ".yaml":
        for document in documents(path):
            yield from _commands_in(document)
    elif path.suffix == ".service":
        lines = [line.partition("=")[2] for line in path.read_text().splitlines() if line.startswith("ExecStart")]
        yield from (shlex.split(line)[2:] for line in lines)
    else:
        blocks = re.findall(r"```(?:sh|console)\n(.*?)```", path.read_text(), re.DOTALL)
        lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
        found = [re.match(r"(?:\$ )?(?:docker run .* )?isthmus (.*)", line) for line in lines]
        yield from (shlex.split(each[1], comments=True) for each in found if each)


def _commands_in(document: Any) -> Iterator[list[str]]:
    for words in _lists(document):
        command = words[1:] if words[:1] == ["CMD"] else words
        if len(command) > 1 and Path(command[0]).name == "isthmus":
            yield command[1:]
    bare = [re.sub(r"\{\{.*?\}\}", "X", text) for text in _texts(document)]
    yield from (shlex.split(text)[1:] for text in bare if text.startswith("X/bin/isthmus "))
    if isinstance(document, dict) and document.get("kind") == "SparkApplication":
        yield document["spec"]["arguments"]


COMMAND: Any = typer.main.get_command(app)
HOLDING = [*YAML, *UNITS, ROOT / "docs" / "deploying.md"]
LINES = [(path, words) for path in HOLDING for words in commands_of(path)]


def test_there_are_command_lines_of_every_kind() -> None:
    kinds = {path.relative_to(ROOT).parts[1] for path, _ in LINES}
    assert kinds >= {"compose", "k8s", "systemd", "ansible", "deploying.md"}
    assert {words[0] for _, words in LINES} >= {"run", "metrics", "tunnel", "status", "config"}


@pytest.mark.parametrize(("path", "words"), LINES, ids=[f"{path.name}: {words[0]}" for path, words in LINES])
def test_every_command_line_is_one_that_the_command_takes(path: Path, words: list[str]) -> None:
    if words == ["--version"]:
        return
    group = COMMAND
    context = group.make_context("isthmus", list(words))
    while hasattr(group, "resolve_command") and (rest := [*context._protected_args, *context.args]):
        name, group, rest = group.resolve_command(context, rest)
        context = group.make_context(name, rest, parent=context)
    assert not hasattr(group, "resolve_command"), "a group alone does nothing"


# --- configurations ---------------------------------------------------------------------------


def _brought(path: Path, folder: Path) -> Path:
    """A copy in which /etc/isthmus is a folder of the test's, with a key for each reference."""
    text = path.read_text().replace("/etc/isthmus", str(folder))
    for place, key in re.findall(r"\$\{dir:([^:}]+):([^}]+)\}", text):
        Path(place).mkdir(exist_ok=True)
        (Path(place) / key).write_text("ab" * 32 + "\n")
        (Path(place) / key).chmod(0o600)
    (folder / "tunnel.key").write_text("ab" * 32 + "\n")
    (folder / "tunnel.key").chmod(0o600)
    copy = folder / path.name
    copy.write_text(text)
    copy.chmod(0o600)
    return copy


@pytest.mark.parametrize("name", ["compose/destination/flow.yaml", "compose/demo/flow.yaml", "k8s/flow.yaml"])
def test_every_flow_can_be_loaded_and_nothing_in_it_is_in_doubt(name: str, tmp_path: Path) -> None:
    loaded = load(_brought(DEPLOY / name, tmp_path))
    assert [flow.name for flow in loaded.flows] == ["east->west"]
    assert loaded.exposed == ()


def test_ends_of_tunnels_and_the_inventorys_files_can_be_loaded(tmp_path: Path) -> None:
    assert read_end(_brought(DEPLOY / "compose/source/tunnel.yaml", tmp_path)).spec.role == "exit"
    (inventory,) = documents(DEPLOY / "ansible/inventory.example.yaml")
    sites = inventory["all"]["children"]
    end, flow = tmp_path / "end.yaml", tmp_path / "flows.yaml"
    end.write_text(yaml.safe_dump(sites["isthmus_source"]["vars"]["isthmus_tunnel"]))
    flow.write_text(yaml.safe_dump(sites["isthmus_destination"]["vars"]["isthmus_flow"]))
    assert read_end(end).spec.role == "exit"
    (tmp_path / "copy").mkdir()
    assert load(_brought(flow, tmp_path / "copy")).flows


# --- the others -------------------------------------------------------------------------------


@pytest.mark.skipif(SYSTEMD is None, reason="no systemd-analyze here")
def test_systemd_takes_the_units_and_finds_them_closed() -> None:
    assert SYSTEMD is not None
    for words in (["verify"], ["security", "--offline=true", "--threshold=30"]):
        done = subprocess.run([SYSTEMD, *words, *map(str, UNITS)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_bash_takes_the_entry_point_and_it_runs_what_it_is_given(tmp_path: Path) -> None:
    """With a `tini` and a `java` that tell what they were given."""
    for name in ("tini", "java"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (tmp_path / name).chmod(0o755)
    names = "DRIVER_URL EXECUTOR_ID EXECUTOR_CORES APPLICATION_ID EXECUTOR_POD_IP RESOURCE_PROFILE_ID EXECUTOR_POD_NAME"
    env = {f"SPARK_{name}": name.lower() for name in names.split()}
    env |= {"PATH": f"{tmp_path}:/usr/bin:/bin", "SPARK_HOME": "/s", "SPARK_EXECUTOR_MEMORY": "512m"}
    env |= {"SPARK_JAVA_OPT_0": "-Da=1", "SPARK_JAVA_OPT_10": "-Dc=3", "SPARK_JAVA_OPT_2": "-Db=2"}

    def told(*words: str) -> str:
        script = DEPLOY / "docker" / "entrypoint.sh"
        return subprocess.run(["bash", script, *words], env=env, capture_output=True, text=True, check=True).stdout

    assert told("isthmus", "run", "a b") == "tini -s -- isthmus run a b\n"
    assert told("executor").startswith("tini -s -- java -Da=1 -Db=2 -Dc=3 -Xms512m -Xmx512m -cp /s/jars/*: org.apache")
    assert "--driver-url driver_url" in told("executor")


def test_the_image_is_not_roots_and_copies_what_is_there() -> None:
    lines = (DEPLOY / "docker" / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("USER")] == ["USER 10001:10001"]
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY") and "--from" not in line]
    paths = [word for words in copied for word in words if not word.startswith("--")]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    kept = [
        line[1:] for line in (DEPLOY / "docker" / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"
    ]
    assert [path for path in paths if not any(path == each or path.startswith(f"{each}/") for each in kept)] == []


def test_the_image_is_held_to_the_lock() -> None:
    """What `sed` makes of the lock are constraints for pip, one for each pinned package."""
    dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
    script = re.search(r"sed -n '(.*)' requirements.lock", dockerfile)
    assert script is not None
    lock = ROOT / "requirements.lock"
    made = subprocess.run(["sed", "-n", script[1], str(lock)], capture_output=True, text=True, check=True).stdout
    pinned = [line for line in lock.read_text().splitlines() if re.match(r"[A-Za-z0-9_.-]+==", line)]
    assert [str(Requirement(line).specifier) for line in made.splitlines()] == [
        f"=={re.split(r'[ ;]', line.split('==')[1])[0]}" for line in pinned
    ]


@pytest.mark.parametrize("name", ["source-side.yaml", "destination-side.yaml", "demo/compose.yaml"])
def test_compose_mounts_what_is_there_and_waits_for_services_that_exist(name: str) -> None:
    path = DEPLOY / "compose" / name
    (found,) = documents(path)
    for service in found["services"].values():
        mounted = [volume.split(":")[0] for volume in service.get("volumes", [])]
        assert [each for each in mounted if not (path.parent / each).exists()] == []
        assert set(service.get("depends_on", {})) <= set(found["services"])
        if "ISTHMUS_IMAGE" in service["image"]:
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]


def test_the_playbooks_units_and_roles_are_there() -> None:
    (plays,) = documents(DEPLOY / "ansible/site.yaml")
    for role in {role for play in plays for role in play["roles"]}:
        tasks = documents(DEPLOY / f"ansible/roles/{role}/tasks/main.yaml")[0]
        assert all(task["name"] for task in tasks)
        handlers = DEPLOY / f"ansible/roles/{role}/handlers/main.yaml"
        known = {each["name"] for each in documents(handlers)[0]} if handlers.exists() else set()
        assert {task["notify"] for task in tasks if "notify" in task} <= known
        secret = [task for task in tasks if "isthmus_tunnel_key }}" in str(task)]
        assert all(task["no_log"] for task in secret)
    (defaults,) = documents(DEPLOY / "ansible/roles/tunnel/defaults/main.yaml")
    assert {"isthmus@.service", defaults["isthmus_tunnel_unit"]} <= {path.name for path in UNITS}
