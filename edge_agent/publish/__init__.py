"""What the agent tells the world: messages, MQTT, webhooks, events."""
