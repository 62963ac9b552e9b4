"""The one exception tree of Isthmus.

    IsthmusError
      ConfigError            exit 2   the file or the command line is wrong
      MachineError           exit 3   Java, Spark or the machine is not fit
      SourceError            exit 6   the source cluster cannot be used
      TargetError            exit 7   the target cluster cannot be used
      RivalError             exit 8   another driver owns this flow
      PartitionStopped       exit 9   a partition stopped loudly (gap, recreated, refused)
      BadRecord              exit 9   a transform fails on a record, or its row cannot be written
      ProofError             exit 10  what was copied is not what was there
      LoopError              exit 11  records could go round: who wrote what is not known any more
      WireError              exit 12  a broker answered what the protocol does not allow
        BrokerUnreachable    (retriable) no connection, or it was lost: outcome unknown
          SecurityRefused    TLS or the login failed; the code says how
        BrokerRefused        an error code in an answer
        OrderVoid            this order was fenced, timed out or claimed by another attempt

Every error says what happened (`message`), where (`where`), what to do (`hint`), under a stable
`code` that documentation and scripts can rely on. Nothing here logs or prints; raising is the only
way that trouble travels. No field may ever hold a secret.
"""

from __future__ import annotations


class IsthmusError(Exception):
    """Base of all errors that a user may see."""

    code = "ISTHMUS"
    exit_code = 1
    retriable = False

    def __init__(self, message: str, *, where: str = "", hint: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        if code:
            self.code = code

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"{self.message}{place}"

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross from executors to the driver by pickle; keyword fields must survive the trip.
        return _rebuild, (type(self), self.message, self.where, self.hint, self.code)


def _rebuild(kind: type[IsthmusError], message: str, where: str, hint: str, code: str) -> IsthmusError:
    error = kind.__new__(kind)
    IsthmusError.__init__(error, message, where=where, hint=hint, code=code)
    return error


class ConfigError(IsthmusError):
    """The configuration file or the command line is wrong; nothing was touched."""

    code = "CONFIG"
    exit_code = 2


class MachineError(IsthmusError):
    """Java, Spark or this machine cannot do the work."""

    code = "MACHINE"
    exit_code = 3


class SourceError(IsthmusError):
    """The source cluster cannot be reached or used."""

    code = "SOURCE"
    exit_code = 6


class TargetError(IsthmusError):
    """The target cluster cannot be reached or used."""

    code = "TARGET"
    exit_code = 7


class RivalError(IsthmusError):
    """Another driver owns this flow, or took it over."""

    code = "RIVAL"
    exit_code = 8


class PartitionStopped(IsthmusError):
    """One or more partitions stopped loudly; what is affected is on record."""

    code = "STOPPED"
    exit_code = 9


class BadRecord(IsthmusError):
    """A transform fails on a record, or gives a row that cannot be written: it comes again with the same record."""

    code = "POISON"
    exit_code = 9


class ProofError(IsthmusError):
    """An independent reader found a difference between source and target."""

    code = "PROOF"
    exit_code = 10


class LoopError(IsthmusError):
    """Records that came from the target could be sent back to it."""

    code = "LOOP"
    exit_code = 11


class WireError(IsthmusError):
    """A broker answered what the protocol does not allow, or not at all."""

    code = "WIRE"
    exit_code = 12


class BrokerUnreachable(WireError):
    """No connection, or it was lost with a request in flight: the outcome is unknown."""

    code = "UNREACHABLE"
    retriable = True


class SecurityRefused(BrokerUnreachable):
    """There is a broker, but TLS or the login failed. A certificate or password may be replaced while a flow runs, so
    to a flow it is like a broker that cannot be reached; a start ends with it."""

    code = "SECURITY"


class BrokerRefused(WireError):
    """An answer carried an error code; `kafka_code` is the broker's number."""

    code = "REFUSED"

    def __init__(self, message: str, kafka_code: int = -1, *, where: str = "", hint: str = "", code: str = "") -> None:
        super().__init__(message, where=where, hint=hint, code=code)
        self.kafka_code = kafka_code

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_refused, (self.message, self.kafka_code, self.where, self.hint, self.code)


def _rebuild_refused(message: str, kafka_code: int, where: str, hint: str, code: str) -> BrokerRefused:
    return BrokerRefused(message, kafka_code, where=where, hint=hint, code=code)


class OrderVoid(WireError):
    """This order may not write any more: fenced, timed out, or claimed by another attempt."""

    code = "VOID"
    retriable = True
