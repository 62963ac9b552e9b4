"""Files that hold secrets and that others on this machine may read.

Owns which files of a configuration hold secrets: the file itself where one stands in it in clear, what references of
secret settings lead to, and key stores. Looks at mode bits only, because root may read everything and tells nothing.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from isthmus.config.credentials import holds_secret, is_secret
from isthmus.config.substitute import Providers, Resolved
from isthmus.errors import ConfigError
from isthmus.model import Cluster

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_POD = "KUBERNETES_SERVICE_HOST"  # Kubernetes sets it in every pod


def exposed(clusters: Iterable[Cluster], origin: Path, providers: Providers) -> tuple[Path, ...]:
    """The files with secrets of these clusters that somebody else may read or write.

    The clusters still have to remember their references, and the providers are those that followed them.
    """
    found = dict.fromkeys(path for cluster in clusters for path in _holding(cluster, origin, providers))
    return tuple(path for path in found if _open_to_others(path))


def refuse(paths: tuple[Path, ...]) -> None:
    """One error with the line that helps."""
    if paths:
        one = len(paths) == 1
        named = ", ".join(map(str, paths))
        raise ConfigError(
            f"{'this file holds' if one else 'these files hold'} secrets, and others on this machine may read "
            f"{'it' if one else 'them'}: {named}",
            hint=f"chmod go= {shlex.join(map(str, paths))}",
            code="EXPOSED",
        )


def _holding(cluster: Cluster, origin: Path, providers: Providers) -> Iterator[Path]:
    for name, value in cluster.settings.items():
        if not value:
            continue
        if name == "ssl.keystore.location":
            yield Path(value)
        elif is_secret(name) and not _of_no_weight(name):
            if isinstance(value, Resolved):
                yield from providers.files_of(value.text)
            if holds_secret(name, value.text if isinstance(value, Resolved) else value):
                yield origin


def _of_no_weight(name: str) -> bool:
    """A trust store's password keeps nothing secret: what is in it are public certificates."""
    return name == "ssl.truststore.password"


def _open_to_others(path: Path) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False  # not there, or no file at all (the environment): whoever needs it will say so
    return stat.S_ISREG(found.st_mode) and bool(found.st_mode & _others())


def _others() -> int:
    """Secrets are mounted into a pod as root's, and opened to the pod's own group (`fsGroup`) where it is not root.
    Nobody but the pod is in that group."""
    return _OTHERS & ~stat.S_IRGRP if _POD in os.environ else _OTHERS
