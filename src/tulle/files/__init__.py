"""Files: archives, durable writes, tables."""
