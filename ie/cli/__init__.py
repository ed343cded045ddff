"""The commands: `ie-run` and `ie-doctor`. Each module says what it owns; nothing above imports from here."""
