#!/usr/bin/env python3
"""One row: work.py NUMBER, with the sentence in $SENTENCE. Prints JSON. --check NUMBER multiplies the factors again."""
import hashlib
import json
import os
import sys


def factors(n):
	out, p = [], 2
	while p * p <= n:
		while n % p == 0:
			out.append(p)
			n //= p
		p += 1 if p == 2 else 2
	return out + [n] if n > 1 else out


def answer(number, sentence):
	return {"id": number, "factors": factors(number), "words": len(sentence.split()), "letters": sum(c.isalpha() for c in sentence),
		"sha256": hashlib.sha256(sentence.encode()).hexdigest()}


def main(argv):
	if argv[0] == "--check":
		product = 1
		for f in factors(int(argv[1])):
			product *= f
		print("right" if product == int(argv[1]) else "wrong")
	else:
		print(json.dumps(answer(int(argv[0]), os.environ["SENTENCE"])))


if __name__ == "__main__":
	main(sys.argv[1:])
