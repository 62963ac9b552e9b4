"""Real Kafka on this machine: jars, clusters that leave nothing behind, proof and comparison."""

from isthmus.lab.brokers import ClusterSpec, Listener
from isthmus.lab.cluster import Lab, LabCluster

__all__ = ["ClusterSpec", "Lab", "LabCluster", "Listener"]
