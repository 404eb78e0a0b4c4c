#!/usr/bin/env python3
"""Reads one part of a dpkg status file: census_analyse.py PART OUT.json"""
import json
import re
import sys


def stanzas(text):
	for block in text.split("\n\n"):
		fields, name = {}, None
		for line in block.split("\n"):
			if line[:1] in (" ", "\t"):
				continue        # the rest of a long field: nothing we count
			name, colon, value = line.partition(":")
			if colon:
				fields[name] = value.strip()
		if fields:
			yield fields


def needs(fields):
	"""Names of the packages it can't run without; of alternatives the first."""
	out = set()
	for key in ("Depends", "Pre-Depends"):
		for part in fields.get(key, "").split(","):
			name = re.match(r"\s*([a-z0-9][a-z0-9+.-]*)", part)
			if name:
				out.add(name.group(1))
	return sorted(out)


def main(source, target):
	with open(source, "rb") as f:
		raw = f.read()
	packages = []
	for p in stanzas(raw.decode("utf-8", "replace")):
		if "Package" not in p or "installed" not in p.get("Status", "").split():
			continue
		packages.append({
			"name": p["Package"],
			"version": p.get("Version", ""),
			"architecture": p.get("Architecture", ""),
			"section": p.get("Section", "none").rpartition("/")[2],
			"priority": p.get("Priority", ""),
			"kib": int(p.get("Installed-Size", "0")),
			"needs": needs(p),
		})
	with open(target, "w") as f:
		json.dump({"bytes_read": len(raw), "packages": packages}, f)
	print("packages: %d" % len(packages))


if __name__ == "__main__":
	main(*sys.argv[1:3])
