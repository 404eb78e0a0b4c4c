#include "api/e2b_req.h"

#include <errno.h>
#include <string.h>
#include "core/str.h"
#include "http/url.h"

void api_handle(void *ctx, struct http_req *r)
{
	struct api *a = ctx;

	if (!e2b_try(a, r))
		rest_handle(a, r);
}

void api_refuse(void *ctx, struct http_req *r, int status, const char *path, const char *why)
{
	if (path[0] && !str_starts(path, "/v1/"))
		e2b_status(r, status, "%s", why);
	else
		rest_refuse(r, status, path, why);
}

int api_auth(struct api *a, struct http_req *r, struct principal *ret, struct err *e)
{
	const char *key = http_req_header(r, "x-api-key"), *auth = http_req_header(r, "authorization");

	if (!key && auth && strncasecmp(auth, "Bearer ", 7) == 0)
		key = auth + 7;
	if (key)
		return ops_auth_key(a->ops, key, ret, e);
	if (a->no_key && http_req_is_loopback(r)) {
		*ret = (struct principal){ .rights = OP_READ | OP_USE | OP_MANAGE | OP_ADMIN, .name = "nokey" };
		return 0;
	}
	err_set(e, EACCES, "no API key was sent");
	return err_hint(e, "send 'Authorization: Bearer KEY' or 'X-API-KEY: KEY'; the key is in the file 'api-key' of the server's state folder");
}

bool api_auth_is_ours(struct api *a, const struct http_req *r)
{
	const char *auth = http_req_header(r, "authorization");
	struct principal who;

	if (!auth || strncasecmp(auth, "Bearer ", 7) != 0)
		return false;
	return ops_auth_key(a->ops, auth + 7, &who, NULL) == 0 || ops_find_by_token(a->ops, auth + 7);
}

static bool is_loopback_name(const char *authority)
{
	char host[256];
	uint16_t port;

	if (http_split_host(authority, strlen(authority), host, sizeof host, &port) < 0)
		return false;
	return str_eq(host, "localhost") || str_ends(host, ".localhost") || str_starts(host, "127.") || str_eq(host, "::1") || str_eq(host, "[::1]");
}

int api_same_site(struct api *a, struct http_req *r, struct err *e)
{
	const char *site = http_req_header(r, "sec-fetch-site"), *origin = http_req_header(r, "origin"), *host = http_req_host(r);

	if (a->no_key && host[0] && !is_loopback_name(host))
		return err_set(e, EPERM, "without a key only requests to a loopback name are taken, not '%.80s'", host);
	if (site && !str_eq(site, "same-origin") && !str_eq(site, "none"))
		return err_set(e, EPERM, "a page of another site sent this request");
	if (!origin)
		return 0;
	origin = str_starts(origin, "http://") ? origin + 7 : str_starts(origin, "https://") ? origin + 8 : "";
	if (!str_eq(origin, host))
		return err_set(e, EPERM, "a page of another site sent this request");
	return 0;
}
