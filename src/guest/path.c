#include "guest/path.h"

#include <errno.h>
#include <string.h>

#include "core/str.h"

/* Appends the parts of `from` to the clean path of *len bytes in out ("" stands for "/"). */
static int add_parts(char *out, size_t *len, size_t size, const char *from)
{
	while (*from) {
		size_t n = strcspn(from, "/");

		if (n == 2 && from[0] == '.' && from[1] == '.') {
			while (*len && out[*len - 1] != '/')
				--*len;
			if (*len)
				--*len;
		} else if (n && !(n == 1 && from[0] == '.')) {
			if (*len + 1 + n >= size)
				return -ENAMETOOLONG;
			out[(*len)++] = '/';
			memcpy(out + *len, from, n);
			*len += n;
		}
		from += n;
		while (*from == '/')
			from++;
	}
	return 0;
}

int path_resolve(const char *in, const char *home, char *out, size_t size, struct err *e)
{
	size_t len = 0;
	int rc = 0;

	if (in[0] == '~' && (in[1] == '\0' || in[1] == '/'))
		in++, rc = add_parts(out, &len, size, home);
	else if (in[0] != '/')
		rc = add_parts(out, &len, size, home);
	if (rc == 0)
		rc = add_parts(out, &len, size, in);
	if (rc < 0)
		return err_set(e, -rc, "path '%.100s…' is too long", in);
	if (len == 0)
		out[len++] = '/';
	out[len] = '\0';
	return 0;
}
