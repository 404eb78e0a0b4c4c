/* sanitize-probe -- does what a sanitizer must report: `address` or `undefined`. tools/test asks it before it believes an empty folder. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	volatile int big = INT_MAX;
	char *p = malloc(8);

	if (argc == 2 && strcmp(argv[1], "undefined") == 0)
		big += argc;
	else if (p)
		memset(p, 1, (size_t)(7 + argc));       /* the library's write: UBSan checks what the compiler wrote */
	printf("%d %d: nothing noticed\n", big, p ? p[0] : 0);
	free(p);
	return 0;
}
