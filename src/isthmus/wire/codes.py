"""Kafka's error codes by name, and which of them heal by themselves.

Only codes that we react to by name stand here; every other one is treated as permanent, which means a
loud stop and never a guess. -1 (UNKNOWN_SERVER_ERROR) is permanent for the batch that caused it.
"""

from __future__ import annotations

from kafka.errors import for_code

UNKNOWN_SERVER = -1
NONE = 0
OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC = 3
LEADER_NOT_AVAILABLE = 5
NOT_LEADER = 6
REQUEST_TIMED_OUT = 7
REPLICA_NOT_AVAILABLE = 9
MESSAGE_TOO_LARGE = 10
NETWORK_EXCEPTION = 13
COORDINATOR_LOADING = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
RECORD_LIST_TOO_LARGE = 18
NOT_ENOUGH_REPLICAS = 19
NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
UNKNOWN_MEMBER_ID = 25
TOPIC_AUTHORIZATION_FAILED = 29
GROUP_AUTHORIZATION_FAILED = 30
CLUSTER_AUTHORIZATION_FAILED = 31
INVALID_TIMESTAMP = 32
UNSUPPORTED_VERSION = 35
TOPIC_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_CONFIG = 40
NOT_CONTROLLER = 41
INVALID_REQUEST = 42
OUT_OF_ORDER_SEQUENCE = 45
DUPLICATE_SEQUENCE = 46
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
INVALID_TRANSACTION_TIMEOUT = 50
CONCURRENT_TRANSACTIONS = 51
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
SECURITY_DISABLED = 54
KAFKA_STORAGE_ERROR = 56
SASL_AUTHENTICATION_FAILED = 58
UNKNOWN_PRODUCER_ID = 59
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
OFFSET_NOT_AVAILABLE = 78
INVALID_RECORD = 87
THROTTLING_QUOTA_EXCEEDED = 89
PRODUCER_FENCED = 90
UNKNOWN_TOPIC_ID = 100
INCONSISTENT_TOPIC_ID = 103
TRANSACTION_ABORTABLE = 120

# The cluster is moving: refresh the metadata and try again.
MOVING = frozenset(
    {
        LEADER_NOT_AVAILABLE,
        NOT_LEADER,
        REQUEST_TIMED_OUT,
        REPLICA_NOT_AVAILABLE,
        NETWORK_EXCEPTION,
        NOT_ENOUGH_REPLICAS,
        NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KAFKA_STORAGE_ERROR,
        FENCED_LEADER_EPOCH,
        UNKNOWN_LEADER_EPOCH,
        OFFSET_NOT_AVAILABLE,
        THROTTLING_QUOTA_EXCEEDED,
    }
)
# The coordinator is moving or busy: look it up again and try again.
COORDINATOR_MOVING = frozenset({COORDINATOR_LOADING, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR})
# A question that changes nothing is asked again: a broker that has just started may not know a topic yet, one that is
# about to fail says anything.
ASKED_AGAIN = MOVING | {UNKNOWN_SERVER, UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID, CORRUPT_MESSAGE}
# Of a controller: it moves, is too slow to tell what it did (asked again, it says), or wants less at once.
CONTROLLER_MOVING = MOVING | {NOT_CONTROLLER}
# Whoever holds this id and epoch may not write any more. Why is not said by the code.
VOID = frozenset({INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED})


_ADVICE = {
    # Of records of our own, which carry the time of this machine; those that are copied carry their producer's.
    INVALID_TIMESTAMP: "set the clock of this machine right (NTP): its time is refused by the brokers",
    TOPIC_AUTHORIZATION_FAILED: "grant this user {right} on the topic",
    GROUP_AUTHORIZATION_FAILED: "grant this user {right} on the group",
    CLUSTER_AUTHORIZATION_FAILED: "grant this user {right} on the cluster",
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant WRITE and DESCRIBE on transactional ids with the prefix isthmus.",
    SASL_AUTHENTICATION_FAILED: "check user and password of this cluster in the flow's file",
    UNSUPPORTED_VERSION: "the broker is too old for this request: `isthmus doctor` tells for what else",
}


def advice(code: int, right: str = "DESCRIBE") -> str:
    """What to do about a code that does not heal; `right`: what the request needs."""
    return _ADVICE.get(code, "see the broker's log").format(right=right)


def name(code: int) -> str:
    """The code as Kafka's documentation spells it, with its number."""
    known = _NAMES.get(code)
    return f"{known or for_code(code).__name__} ({code})"


_NAMES = {value: key for key, value in globals().items() if key.isupper() and isinstance(value, int)}
