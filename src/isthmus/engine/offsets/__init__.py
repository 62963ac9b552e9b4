"""Offsets of the source as offsets of the target: the index of what landed where, and what is made of it for groups.

lane:    Track.runs --> runlog --> index topic (after the commit, outside of transactions)
driver:  index topic --> index --> translate --> checkpoints, offset syncs, the groups' own offsets (keeper)
holes:   align (reads both logs; where that cannot be exact, the conservative answer, and said so)
"""
