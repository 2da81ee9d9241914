"""What every process of the product needs, whatever its tier: configuration parts, logs, metrics, systemd."""
