"""TLS and SASL towards brokers. `dial` asks for both; what is wanted is a value, `isthmus.security.Security`."""
