#!/usr/bin/env python3
"""Puts the parts of a census together: census_merge.py [--check] FOLDER, with FOLDER/*/part.json. Prints the summary as JSON."""
import collections
import csv
import glob
import html
import json
import sys


def load(folder):
	packages = []
	for path in sorted(glob.glob(folder + "/*/part.json")):
		with open(path) as f:
			packages += json.load(f)["packages"]
	return packages


def table(path, head, rows):
	with open(path, "w", newline="") as f:
		out = csv.writer(f)
		out.writerow(head)
		out.writerows(rows)


def chart(path, sections):
	"""Bars: installed size of the largest sections."""
	top = sections[:14]
	most = max(s["kib"] for s in top) or 1
	row, left, width = 26, 150, 560
	out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 %d" font-family="sans-serif" font-size="13">' % (len(top) * row + 44),
		'<rect width="100%" height="100%" fill="#ffffff"/>', '<text x="10" y="22" font-size="15">Installed size by section</text>']
	for i, s in enumerate(top):
		y = 36 + i * row
		w = max(1, s["kib"] * width // most)
		out.append('<text x="%d" y="%d" text-anchor="end">%s</text>' % (left - 8, y + 15, html.escape(s["section"])))
		out.append('<rect x="%d" y="%d" width="%d" height="18" rx="3" fill="#3d6fd6"/>' % (left, y, w))
		out.append('<text x="%d" y="%d" fill="#444">%.1f MiB, %d packages</text>' % (left + w + 6, y + 14, s["kib"] / 1024, s["packages"]))
	with open(path, "w") as f:
		f.write("\n".join(out + ["</svg>\n"]))


def markdown(path, summary, sections):
	with open(path, "w") as f:
		f.write("# Census\n\n%(packages)d packages, %(mib).1f MiB, %(sections)d sections.\n\n| section | packages | MiB |\n|---|---:|---:|\n" % summary)
		for s in sections:
			f.write("| %s | %d | %.1f |\n" % (s["section"], s["packages"], s["kib"] / 1024))


def merge(packages):
	by = collections.defaultdict(lambda: {"packages": 0, "kib": 0})
	asked = collections.Counter()
	for p in packages:
		by[p["section"]]["packages"] += 1
		by[p["section"]]["kib"] += p["kib"]
		asked.update(p["needs"])
	sections = sorted(({"section": k, **v} for k, v in by.items()), key=lambda s: (-s["kib"], s["section"]))
	names = {p["name"] for p in packages}
	total = sum(p["kib"] for p in packages)
	summary = {"packages": len(packages), "mib": round(total / 1024, 1), "sections": len(sections),
		"most_needed": asked.most_common(1)[0][0] if asked else None, "virtual_or_missing": len(set(asked) - names)}
	table("sections.csv", ["section", "packages", "MiB", "share"],
		([s["section"], s["packages"], "%.1f" % (s["kib"] / 1024), "%.1f %%" % (100 * s["kib"] / (total or 1))] for s in sections))
	table("largest.csv", ["package", "version", "section", "MiB"],
		([p["name"], p["version"], p["section"], "%.1f" % (p["kib"] / 1024)] for p in sorted(packages, key=lambda p: (-p["kib"], p["name"]))[:15]))
	table("needed.csv", ["package", "needed by"], ([n, c] for n, c in sorted(asked.items(), key=lambda x: (-x[1], x[0]))[:15] if n in names))
	chart("chart.svg", sections)
	markdown("census.md", summary, sections)
	with open("census.json", "w") as f:
		json.dump({"summary": summary, "sections": sections, "packages": packages}, f, indent=1)
	print(json.dumps(summary))


def main(argv):
	check = argv[0] == "--check"
	packages = load(argv[-1])
	if not packages:
		sys.exit("no parts in " + argv[-1])
	if not check:
		return merge(packages)
	with open("census.json") as f:
		have = json.load(f)
	good = have["summary"]["packages"] == len(packages) == sum(s["packages"] for s in have["sections"])
	keys = {(p["name"], p["architecture"]) for p in packages}
	return 0 if good and len(keys) == len(packages) else 1


if __name__ == "__main__":
	sys.exit(main(sys.argv[1:]))
