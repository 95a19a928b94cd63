"""The lab: runs, studies and tunings from their configurations."""
