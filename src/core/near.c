/* near -- which word was meant. */
#include <string.h>
#include "core/str.h"

/* Edits (insert, delete, replace, swap of neighbours) between two short words. */
static size_t distance(const char *a, const char *b)
{
	size_t la = strlen(a), lb = strlen(b), d[33][33];

	if (la > 32 || lb > 32)
		return 99;
	for (size_t i = 0; i <= la; i++) {
		for (size_t j = 0; j <= lb; j++) {
			if (!i || !j) {
				d[i][j] = i + j;
				continue;
			}
			size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);

			if (d[i - 1][j] + 1 < best)
				best = d[i - 1][j] + 1;
			if (d[i][j - 1] + 1 < best)
				best = d[i][j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
				best = d[i - 2][j - 2] + 1;
			d[i][j] = best;
		}
	}
	return d[la][lb];
}

const char *str_nearest(const char *word, const char *const *candidates, size_t n)
{
	const char *best = NULL;
	size_t least = strlen(word) / 3 + 2;    /* exclusive: a third of the word may be wrong */

	for (size_t i = 0; i < n; i++) {
		size_t d = distance(word, candidates[i]);

		if (d < least) {
			least = d;
			best = candidates[i];
		}
	}
	return best;
}
