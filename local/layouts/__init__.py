"""Layouts that anyone's data may have, each read by one function into a folder of manifests."""
