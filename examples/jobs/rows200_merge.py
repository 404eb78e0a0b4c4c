#!/usr/bin/env python3
"""All rows together: merge.py ANSWERS.json. Works every row out again, compares, and makes answers.csv and chart.svg."""
import collections
import csv
import json
import sys

from work import answer


def main(path):
	with open(path) as f:
		rows = json.load(f)
	wrong, lengths = [], collections.Counter()
	with open("answers.csv", "w", newline="") as f:
		out = csv.writer(f)
		out.writerow(["task", "number", "factors", "words", "letters"])
		for r in rows:
			got, want = r["result"]["answer"], answer(int(r["row"]["number"]), r["row"]["sentence"])
			if got != want:
				wrong.append(r["task"])
			lengths[len(got["factors"])] += 1
			out.writerow([r["task"], got["id"], " x ".join(map(str, got["factors"])), got["words"], got["letters"]])
	most = max(lengths.values())
	svg = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 %d" font-family="sans-serif" font-size="13">' % (len(lengths) * 26 + 44),
		'<rect width="100%" height="100%" fill="#ffffff"/><text x="10" y="22" font-size="15">Rows by number of prime factors</text>']
	for i, (n, c) in enumerate(sorted(lengths.items())):
		svg.append('<text x="30" y="%d" text-anchor="end">%d</text><rect x="40" y="%d" width="%d" height="18" rx="3" fill="#3d6fd6"/><text x="%d" y="%d">%d</text>'
			% (51 + i * 26, n, 36 + i * 26, c * 480 // most, 48 + c * 480 // most, 50 + i * 26, c))
	with open("chart.svg", "w") as f:
		f.write("\n".join(svg + ["</svg>\n"]))
	print(json.dumps({"rows": len(rows), "wrong": len(wrong), "wrong_tasks": wrong[:20]}))
	return 1 if wrong else 0


if __name__ == "__main__":
	sys.exit(main(sys.argv[1]))
