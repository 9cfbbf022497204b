"""The screen: it draws frames, turns keys into intents, and measures nothing."""
