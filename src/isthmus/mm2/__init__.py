"""MirrorMaker 2's rules, as pure functions: names, filters, progress records.

What makes Isthmus a drop-in lives here. No I/O, no clock, no Kafka client; everything is a function
of its arguments, so that each rule can be tested against what the Java code does.
"""
