"""Configuration files into typed flows: our YAML, MirrorMaker 2's properties, Strimzi's resource, setenv.sh, kafka-reo.

`load.load(path)` is the one way in. What comes out are plain values of `isthmus.model`, checked; what is
wrong is told once, with file and line, before anything is touched. Nothing here talks to a cluster.
"""
