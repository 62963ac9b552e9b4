"""The file of one end of a tunnel, for `isthmus tunnel serve` and `connect`.

    role: exit                    # it has the brokers; entry: it has the clients
    listen: 0.0.0.0:7443          # or `dial: host:port`
    secret_file: tunnel.key       # or `secret: ${env:...}`
    cluster: {bootstrap: ...}     # of an exit: only brokers that it advertises are connected to
    allow: ["*.far:9092"]         # further hosts, or networks, and ports

Owns its keys. Must stay true: ONE ConfigError tells what is wrong, with lines; no secret appears in it, and files with
secrets that others may read are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from isthmus.config import tunnels, values
from isthmus.config.exposed import exposed, refuse
from isthmus.config.flowfile import substituted
from isthmus.config.places import Document, Problem, read_yaml, refusal
from isthmus.config.schema import ClusterSpec, Spec
from isthmus.config.secured import secured
from isthmus.config.security import read_security
from isthmus.config.substitute import Missing, Providers, Resolved, plain
from isthmus.errors import ConfigError
from isthmus.model import Cluster
from isthmus.security import Secret
from isthmus.tunnel.allow import Rule, read_rule
from isthmus.tunnel.counters import is_loopback
from isthmus.tunnel.end import POOL, EndSpec, Place
from isthmus.tunnel.listener import Limits
from isthmus.tunnel.secret import doubt, several

_Address = Annotated[str, AfterValidator(values.broker)]


class LimitsSpec(Spec):
    connections: int = Field(default=Limits().connections, ge=1)
    unauthenticated: int = Field(default=Limits().unauthenticated, ge=1)
    handshake_seconds: float = Field(default=Limits().handshake_seconds, gt=0)


class EndFileSpec(Spec):
    role: Literal["exit", "entry"]
    listen: _Address | None = None
    dial: _Address | None = None
    secret: str | None = None
    secret_file: str | None = None
    allow: list[str] = Field(default_factory=list)
    pool: int = Field(default=POOL, ge=1, le=1_000)
    local: _Address | None = None
    metrics: _Address | None = None
    limits: LimitsSpec = LimitsSpec()
    cluster: ClusterSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndFile:
    """What a file asks for; `watched` are the files that it was made of."""

    spec: EndSpec
    cluster: Cluster | None
    warnings: tuple[str, ...]
    watched: tuple[Path, ...]
    key_file: Path | None


def is_end_file(path: Path) -> bool:
    """Whether a file describes an end of a tunnel, and not flows."""
    try:
        return any(line.startswith("role:") for line in path.read_text("utf-8").splitlines())
    except (OSError, ValueError):
        return False


def read_end(path: Path, environ: Mapping[str, str] | None = None) -> EndFile:
    """Read and check; ConfigError if anything is wrong."""
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"the file cannot be read: {error}", where=str(path), hint="check the path") from None
    providers = Providers(path.parent) if environ is None else Providers(path.parent, None, environ)
    problems: list[Problem] = []
    document = substituted(read_yaml(text, path), providers, problems)
    if problems:
        raise refusal(path, problems)
    try:
        found = EndFileSpec.model_validate(document.data)
    except ValidationError as error:
        raise refusal(path, [_problem(document, each) for each in error.errors(include_url=False)]) from None
    return _Reading(path, document, found, providers).take()


def _problem(document: Document, detail: Any) -> Problem:
    name = ".".join(map(str, detail["loc"])) or "the file"
    kinds = {"extra_forbidden": f"unknown key `{name}`", "missing": f"`{name}` is missing"}
    said = detail["msg"].removeprefix("Value error, ")
    return Problem(document.line(detail["loc"]), kinds.get(detail["type"], f"`{name}`: {said}"))


class _Reading:
    def __init__(self, path: Path, document: Document, found: EndFileSpec, providers: Providers) -> None:
        self.path = path
        self.found = found
        self.document = document
        self.providers = providers

    def take(self) -> EndFile:
        if problems := list(self._contradictions()):
            raise refusal(self.path, problems)
        secret = self._secret()
        cluster, told = self._cluster()
        own = Cluster(alias="tunnel", bootstrap=(), settings={tunnels.SECRET: secret})
        refuse(exposed([own, *([cluster] if cluster else [])], self.path, self.providers))
        secrets = self._several(str(secret))
        key_file = self.path.parent / self.found.secret_file if self.found.secret_file else None
        return EndFile(
            spec=self._spec(secrets),
            cluster=plain(cluster) if cluster else None,
            warnings=tuple(filter(None, (doubt(secrets), *told))),
            watched=(self.path, *([key_file] if key_file else [])),
            key_file=key_file,
        )

    def _contradictions(self) -> Iterator[Problem]:
        found = self.found
        if (found.listen is None) == (found.dial is None):
            yield self._at("listen", "either `listen` or `dial` is meant")
        if (found.secret is None) == (found.secret_file is None):
            yield self._at("secret", "either `secret` or `secret_file` is meant")
        yield from self._wrong_for_the_role()
        yield from self._wrong_places()

    def _wrong_for_the_role(self) -> Iterator[Problem]:
        found = self.found
        if found.role == "exit" and found.cluster is None and not found.allow:
            yield self._at("role", "an exit needs a `cluster`, or rules in `allow`: else it leads nowhere")
        if found.role == "entry" and (found.cluster or found.allow):
            yield self._at("allow", "`allow` and `cluster` are for the exit")
        if found.role == "exit" and found.local:
            yield self._at("local", "`local` is for the entry")
        if found.role == "entry" and found.dial and not found.local:
            hint = "Isthmus dials by itself; this end is for other programs: `local: 127.0.0.1:1080`"
            yield self._at("dial", "an entry that dials needs a `local` door", hint)

    def _wrong_places(self) -> Iterator[Problem]:
        for name in ("local", "metrics"):
            given = getattr(self.found, name)
            if given and not is_loopback(_place(given).host):
                yield self._at(name, f"`{name}` has to be on loopback", "it asks nobody who they are")
        for number, rule in enumerate(self.found.allow):
            try:
                read_rule(rule)
            except ConfigError as error:
                yield Problem(self.document.line(("allow", number)), error.message, error.hint)

    def _at(self, key: str, text: str, hint: str = "") -> Problem:
        return Problem(self.document.line((key,)), text, hint)

    def _secret(self) -> str:
        if self.found.secret_file is not None:
            path = Path(self.found.secret_file)
            try:
                return self.providers.resolve(f"${{dir:{path.parent}:{path.name}}}")
            except Missing:
                what = f"`secret_file` cannot be read: {path}"
                raise ConfigError(what, where=str(self.path), hint="`isthmus tunnel keygen` makes one") from None
        data: Any = self.document.data
        given: str = data["secret"]  # not pydantic's copy, which has no memory of its reference
        return given

    def _several(self, text: str) -> tuple[Secret, ...]:
        try:
            return several(text)
        except ConfigError as error:
            given = self.found.secret_file
            where = str(self.path.parent / given) if given else f"{self.path}:{self.document.line(('secret',))}"
            raise ConfigError(error.message, where=where, hint=error.hint, code=error.code) from None

    def _cluster(self) -> tuple[Cluster | None, list[str]]:
        given = self.found.cluster
        if given is None:
            return None, []
        data: Any = self.document.data
        raw = data["cluster"].get("properties") or {}
        settings = {
            name: raw[name] if isinstance(raw.get(name), Resolved) else str(value)
            for name, value in given.properties.items()
        }
        made = Cluster(alias="cluster", bootstrap=tuple(map(str, given.bootstrap)), settings=settings)
        reading = read_security(plain(made).settings)
        if reading.wrong:
            line = self.document.line(("cluster", "properties"))
            raise refusal(self.path, [Problem(line, told.text, told.hint) for told in reading.wrong])
        return secured(made, reading), [told.text for told in reading.doubts]

    def _spec(self, secrets: tuple[Secret, ...]) -> EndSpec:
        found = self.found
        rules: tuple[Rule, ...] = tuple(map(read_rule, found.allow))
        places = {name: _maybe(getattr(found, name)) for name in ("listen", "dial", "local", "metrics")}
        limits = Limits(**dict(found.limits))
        return EndSpec(role=found.role, secrets=secrets, allow=rules, pool=found.pool, limits=limits, **places)


def _place(text: str) -> Place:
    host, _, port = text.rpartition(":")
    return Place(host.strip("[]"), int(port))


def _maybe(text: str | None) -> Place | None:
    return _place(text) if text else None
