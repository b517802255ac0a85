"""Who is connected: sessions, settings, heartbeats, telemetry."""
