"""`isthmus topics`, `produce`, `consume`: look into a cluster with a Kafka client's properties file.

Thin: options in, records in and out. In JSON a record is one line with `partition`, `offset`, `timestamp`, `key`,
`value`, `headers`; bytes that are not UTF-8 stand as `{"base64": "..."}`. `produce -o json` reads the same lines.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from isthmus.cli.config import say
from isthmus.cli.render import Output
from isthmus.errors import ConfigError
from isthmus.model import TopicPartition

if TYPE_CHECKING:
    from isthmus.tools.reading import Reading
    from isthmus.tools.writing import TopicWriter
    from isthmus.wire.cluster import Client
    from isthmus.wire.records import Record

_LINES_AT_ONCE = 500
PropertiesOption = Annotated[Path, typer.Option("--properties", help="A Kafka client's properties file.")]
OutputOption = Annotated[Output, typer.Option("-o", "--output", help="How to print.")]


def topics(
    properties: PropertiesOption,
    topic: Annotated[str, typer.Argument(help="Only this one.")] = "",
    all_: Annotated[bool, typer.Option("--all", help="Internal ones, too.")] = False,
    output: OutputOption = Output.text,
) -> None:
    """List the topics of a cluster, with partitions and how many offsets they hold."""
    found = asyncio.run(_topics(_client(properties), topic, all_))
    if output is Output.json:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    table = Table()
    table.add_column("topic")
    for name in ("partitions", "offsets held"):
        table.add_column(name, justify="right")
    for each in found:
        held = sum(p["end"] - p["start"] for p in each["partitions"])
        table.add_row(each["topic"], str(len(each["partitions"])), f"{held:,}")
    Console().print(table)


def _client(properties: Path) -> Client:
    from isthmus.config.client import read_client
    from isthmus.wire.cluster import Client

    cluster, doubts = read_client(properties)
    say(doubts)
    return Client(cluster)


async def _topics(client: Client, topic: str, internal: bool) -> list[dict[str, Any]]:
    from isthmus.tools.reading import refuse_missing
    from isthmus.wire.fetch import EARLIEST, LATEST, settled_offsets

    try:
        await client.start()
        await client.refresh(None)
        if topic:
            refuse_missing(client, topic)
        names = [topic] if topic else sorted(n for n in client.topics if internal or not n.startswith("__"))
        partitions = [TopicPartition(name, number) for name in names for number in client.topics[name].partitions]
        begins = await settled_offsets(client, partitions, EARLIEST)
        ends = await settled_offsets(client, partitions, LATEST)
    finally:
        client.close()
    return [{"topic": name, "partitions": _edges(name, begins, ends)} for name in names]


def _edges(name: str, begins: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> list[dict[str, int]]:
    mine = sorted(tp for tp in begins if tp.topic == name)
    return [{"partition": tp.partition, "start": begins[tp], "end": ends[tp]} for tp in mine]


def consume(
    topic: Annotated[str, typer.Argument(help="The topic to read.")],
    properties: PropertiesOption,
    begin: Annotated[
        str, typer.Option("--from", help="beginning, end, an offset, or a time such as 2026-01-31T12:00:00Z.")
    ] = "beginning",
    partition: Annotated[int, typer.Option(help="Only this one.", min=-1)] = -1,
    most: Annotated[int, typer.Option("--max", help="End after this many records.", min=0)] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more at the end, until Ctrl-C.")] = False,
    output: OutputOption = Output.text,
) -> None:
    """Print committed records with their times and headers; ends at the end of the topic."""
    from isthmus.tools.reading import Reading

    kind, at = _begin(begin)
    reading = Reading(topic=topic, partition=partition, begin=kind, at=at, follow=follow)
    asyncio.run(_consume(_client(properties), reading, most, output))


def _begin(text: str) -> tuple[str, int]:
    if text in ("beginning", "end"):
        return text, 0
    if text.isdigit():
        return "offset", int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        hint = "beginning, end, an offset, or a time such as 2026-01-31T12:00:00Z"
        raise ConfigError(f"{text!r} is no place to begin", where="--from", hint=hint) from None
    return "timestamp", int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


async def _consume(client: Client, reading: Reading, most: int, output: Output) -> None:
    from isthmus.tools.reading import read

    shown = 0
    try:
        await client.start()
        async for tp, record in read(client, reading):
            sys.stdout.write((_line(tp, record) if output is Output.json else _words(tp, record)) + "\n")
            shown += 1
            if shown == most:
                return
    finally:
        client.close()


def _line(tp: TopicPartition, record: Record) -> str:
    return json.dumps(
        {
            "partition": tp.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _text(record.key),
            "value": _text(record.value),
            "headers": [[name, _text(content)] for name, content in record.headers],
        },
        ensure_ascii=False,
    )


def _text(data: bytes | None) -> str | dict[str, str] | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data or b"").decode()}


def _words(tp: TopicPartition, record: Record) -> str:
    moment = "-" if record.timestamp < 0 else datetime.fromtimestamp(record.timestamp / 1000, UTC).isoformat()
    headers = " ".join(f"{name}={_shown(content)}" for name, content in record.headers)
    told = f" [{headers}]" if headers else ""
    return f"{tp.partition}:{record.offset} {moment}{told} {_shown(record.key)} {_shown(record.value)}"


def _shown(data: bytes | None) -> str:
    return "null" if data is None else data.decode(errors="backslashreplace")


def produce(
    topic: Annotated[str, typer.Argument(help="The topic to write to; it must exist.")],
    properties: PropertiesOption,
    separator: Annotated[str, typer.Option("--key-separator", help="What ends the key in a line; none: no keys.")] = "",
    header: Annotated[list[str] | None, typer.Option("--header", help="name=value for every record.")] = None,
    partition: Annotated[int, typer.Option(help="Write to this one.", min=-1)] = -1,
    output: Annotated[
        Output, typer.Option("-o", "--output", help="json: lines in, and the result out, are JSON.")
    ] = Output.text,
) -> None:
    """Write standard input to a topic, a record per line."""
    from isthmus.tools.writing import TopicWriter

    headers = tuple(_header(text) for text in header or ())
    records = _given(output, separator.encode().decode("unicode_escape"), headers)
    writer = TopicWriter(_client(properties), topic, partition)
    asyncio.run(_produce(writer, records))
    if output is Output.json:
        sys.stdout.write(json.dumps({"topic": topic, "stored": writer.stored}) + "\n")
    else:
        Console().print(f"{writer.stored:,} records stored in {topic}", highlight=False)


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"{text!r} is not name=value", where="--header", hint="for example --header source=test")
    return name, value.encode()


def _given(output: Output, separator: str, headers: tuple[tuple[str, bytes | None], ...]) -> Iterator[Record]:
    from isthmus.wire.records import Record

    for number, line in enumerate(sys.stdin.buffer, 1):
        text = line.rstrip(b"\r\n")
        now = int(time.time() * 1000)
        if output is Output.json:
            yield _from_json(text, number, now, headers)
            continue
        key, found, value = text.partition(separator.encode()) if separator else (b"", b"", text)
        yield Record(-1, now, key if found else None, value if found or not separator else text, headers)


def _from_json(text: bytes, number: int, now: int, headers: tuple[tuple[str, bytes | None], ...]) -> Record:
    from isthmus.wire.records import Record

    try:
        data = json.loads(text)
        own = tuple((str(name), _bytes(content)) for name, content in data.get("headers", ()))
        stamp = data.get("timestamp", now)
        return Record(-1, int(stamp), _bytes(data.get("key")), _bytes(data.get("value")), (*own, *headers))
    except (ValueError, TypeError, AttributeError, KeyError, binascii.Error):
        hint = '{"key": "k", "value": "v", "headers": [["h", "x"]]} is meant'
        raise ConfigError("this is not a record as JSON", where=f"standard input, line {number}", hint=hint) from None


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return base64.b64decode(value["base64"], validate=True) if isinstance(value, dict) else str(value).encode()


async def _produce(writer: TopicWriter, records: Iterator[Record]) -> None:
    client = writer.client
    try:
        await client.start()
        await writer.open()
        waiting: list[Record] = []
        for record in records:
            waiting.append(record)
            if len(waiting) == _LINES_AT_ONCE:
                await writer.write(waiting)
                waiting = []
        if waiting:
            await writer.write(waiting)
    finally:
        client.close()
