"""The one-port tunnel: a way to brokers behind a firewall, trusted by a shared secret.

One TLS 1.3 connection for each connection to a broker, a CONNECT line inside, no multiplexer. Who listens and who
dials is one question, who has the brokers (the exit) and who has the clients (the entry) another:

    exit listens     `exits` behind `listener`        the entry dials it: `dialing`
    exit dials       `offers`: idle connections       the entry's `meeting` listens for them, and for its own clients

Clients always dial, so an executor needs nothing beside it. `local` is for programs that know SOCKS5 or HTTP CONNECT.
Nothing here knows Kafka: TLS and SASL of a broker run inside, end to end, with the broker's real name.
"""
