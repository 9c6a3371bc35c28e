"""What only maintainers run: format rules, storing, locks, screenshots, benchmarks; no lesson imports it."""
