"""The commands. Each module says what it owns; nothing above imports from here."""
