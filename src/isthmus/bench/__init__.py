"""Isthmus and MirrorMaker 2 side by side: same clusters, same topics, one run, alternating."""
