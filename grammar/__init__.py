"""bitlane."""
