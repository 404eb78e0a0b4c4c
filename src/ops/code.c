#include <errno.h>
#include <stddef.h>

#include "ops/ops.h"

#define SEE_API "docs/API.md says what each operation takes"
#define SEE_LIST "'bureau sandbox list --all' (GET /v1/sandboxes) shows sandboxes, also ended ones; 'bureau sandbox exec ID -- ls -la' the files of one"
#define SEE_PATH "look at the path with 'bureau sandbox exec ID -- ls -la' (GET /v1/sandboxes/ID/files/list)"
#define WAIT "ask again in a moment; 'bureau status' shows how the server is"

/* The API's stable words. errno → word, HTTP status, and the next step where nobody who saw the cause named a better one. */
static const struct { int code; const char *name; int status; const char *hint; } codes[] = {
	{ EINVAL, "invalid_argument", 400, SEE_API },
	{ EACCES, "unauthorized", 401, "'bureau api-key' prints the server's key; a sandbox's access_token is good for that sandbox alone" },
	{ EPERM, "forbidden", 403, "use the server's key, or ask for something that this token may do" },
	{ ENOENT, "not_found", 404, SEE_LIST },
	{ ENOPKG, "no_program", 404, "give its path, or install it; 'command -v NAME' in the sandbox finds one" },
	{ ENOEXEC, "not_executable", 400, "make it executable (chmod +x), or give it to its interpreter: python3 FILE, sh FILE" },
	{ ESRCH, "not_found", 404, "GET /v1/sandboxes/ID/processes lists the programs" },
	{ EEXIST, "already_exists", 409, "use another name, or remove what is there" },
	{ EBUSY, "conflict", 409, "look at its state with 'bureau sandbox show ID', and ask again" },
	{ ENOTDIR, "not_a_folder", 400, SEE_PATH },
	{ EISDIR, "is_a_folder", 400, SEE_PATH },
	{ ENOTEMPTY, "conflict", 409, SEE_PATH },
	{ EPIPE, "closed", 409, "start the program again with stdin open" },
	{ E2BIG, "too_large", 413, "send less at once; a program takes much by stdin, or as a file" },
	{ EFBIG, "too_large", 413, "send less at once" },
	{ ENAMETOOLONG, "invalid_argument", 400, "use a shorter name" },
	{ ELOOP, "invalid_argument", 400, SEE_PATH },
	{ ERANGE, "invalid_argument", 400, SEE_API },
	{ EXDEV, "invalid_argument", 400, SEE_PATH },
	{ EROFS, "forbidden", 403, "write to /home/user, /tmp or another folder of the sandbox's own" },
	{ ENOSYS, "not_implemented", 501, SEE_API },
	{ EOPNOTSUPP, "not_implemented", 501, SEE_API },
	{ ENOSPC, "no_space", 507, "remove files in the sandbox, or create one with a larger 'disk'; for the server: end sandboxes" },
	{ EDQUOT, "no_space", 507, "end programs or remove files in the sandbox, or create one with more 'memory'" },
	{ EAGAIN, "unavailable", 503, WAIT },
	{ ENOMEM, "unavailable", 503, WAIT },
	{ ECONNREFUSED, "refused", 502, "GET /v1/sandboxes/ID/ports lists the ports that something listens on" },
	{ ETIMEDOUT, "timeout", 504, WAIT },
	{ ECANCELED, "canceled", 499, WAIT },
};

static size_t find(int code)
{
	size_t i = 0;

	while (i < sizeof codes / sizeof codes[0] && codes[i].code != code)
		i++;
	return i;
}

const char *ops_code_name(int code)
{
	size_t i = find(code);

	return i < sizeof codes / sizeof codes[0] ? codes[i].name : "internal";
}

int ops_http_status(int code)
{
	size_t i = find(code);

	return i < sizeof codes / sizeof codes[0] ? codes[i].status : 500;
}

const char *ops_code_hint(int code)
{
	size_t i = find(code);

	return i < sizeof codes / sizeof codes[0] ? codes[i].hint : "the server's log says more: 'server.log' of its state folder, or its stderr";
}
