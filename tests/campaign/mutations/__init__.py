"""Faults put into nsqd's log and storage, one at a time; a campaign or a test must catch each."""
