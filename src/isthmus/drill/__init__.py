"""A rehearsal of failover and failback with live writers and readers, and the verdict on it."""
