"""Serving HTTP: routes, requests and replies over aiohttp, TLS, metrics."""
