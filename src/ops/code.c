#include <errno.h>

#include "ops/ops.h"

/* The API's stable words. errno → word, HTTP status. */
static const struct { int code; const char *name; int status; } codes[] = {
	{ EINVAL, "invalid_argument", 400 },
	{ EACCES, "unauthorized", 401 },
	{ EPERM, "forbidden", 403 },
	{ ENOENT, "not_found", 404 },
	{ ESRCH, "not_found", 404 },
	{ EEXIST, "already_exists", 409 },
	{ EBUSY, "conflict", 409 },
	{ ENOTDIR, "not_a_folder", 400 },
	{ EISDIR, "is_a_folder", 400 },
	{ ENOTEMPTY, "conflict", 409 },
	{ EPIPE, "closed", 409 },
	{ E2BIG, "too_large", 413 },
	{ EFBIG, "too_large", 413 },
	{ ENAMETOOLONG, "invalid_argument", 400 },
	{ ELOOP, "invalid_argument", 400 },
	{ ERANGE, "invalid_argument", 400 },
	{ EXDEV, "invalid_argument", 400 },
	{ EROFS, "forbidden", 403 },
	{ ENOSYS, "not_implemented", 501 },
	{ EOPNOTSUPP, "not_implemented", 501 },
	{ ENOSPC, "no_space", 507 },
	{ EDQUOT, "no_space", 507 },
	{ EAGAIN, "unavailable", 503 },
	{ ENOMEM, "unavailable", 503 },
	{ ECONNREFUSED, "refused", 502 },
	{ ETIMEDOUT, "timeout", 504 },
	{ ECANCELED, "canceled", 499 },
};

const char *ops_code_name(int code)
{
	for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
		if (codes[i].code == code)
			return codes[i].name;
	return "internal";
}

int ops_http_status(int code)
{
	for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
		if (codes[i].code == code)
			return codes[i].status;
	return 500;
}
