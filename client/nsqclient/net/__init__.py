"""Asyncio plumbing that clients and servers share."""
