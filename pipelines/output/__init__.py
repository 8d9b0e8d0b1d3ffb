"""What commands print and write: tables, progress, findings, JSON and JUnit."""
